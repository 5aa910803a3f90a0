"""`LogitSet`: logits with their targets and scores; the checks of its rows; probabilities instead of logits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.coins import Coins
from ..core.tally import is_class
from ..functional.checks import (
    are_probabilities,
    as_indices,
    check_logits,
    check_target,
    probabilities_message,
    rounding_slack,
)
from ..functional.per_sample import SampleStats
from .errors import error_prefix

# How far the sum of a row of probabilities may be from 1; see `rounding_slack` for rounded ones.
SUM_TOLERANCE = 0.02
# The target of a sample that does not count.
IGNORED_CLASS = -100
# A probability of 0 is replaced by this number, whose logarithm is about -69.1.
SMALLEST = 1e-30
REMEDY = (
    "give the logits, or from_probabilities=True (--probabilities on the command line), which takes the logarithm; "
    "if they are logits, add 1 to every logit of every set, which does not change the softmax"
)
PERCENT_REMEDY = "divide them by 100 and say that they are probabilities: from_probabilities=True (--probabilities)"


@dataclass(frozen=True, eq=False)
class LogitSet:
    """The logits of a set of samples, with their targets and scores.

    Attributes:
        logits: (N, C), floating.
        target: (N,) class indices, or None.
        columns: scores computed elsewhere, each (N,), higher = more in-distribution.
        name: the name of the set in tables and messages.
        from_probabilities: whether the logits are logarithms of probabilities. After a softmax the energy is always 0,
            and an evaluation leaves it out.
        total: the number of rows that these were drawn from; None if these are all.
        row_numbers: (N,) the numbers of these rows in their file; None if they are all rows.
        notes: columns that no number depends on, such as file names: N strings each, or a tensor.
        classes: the names of the classes, or None.

    >>> from torch_boc.data import read_logits
    >>> data = read_logits((torch.tensor([[2.0, 0.0], [0.0, 1.0]]), [0, 1]), "test")
    >>> len(data), data.num_classes, data.target
    (2, 2, tensor([0, 1]))
    """

    logits: Tensor
    target: Tensor | None = None
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    name: str = "logits"
    from_probabilities: bool = False
    total: int | None = None
    row_numbers: Tensor | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    classes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        with error_prefix(self.name):
            logits = self.logits
            check_logits(logits, -1)
            if logits.ndim != 2 or len(logits) == 0:
                got = f"shape {tuple(logits.shape)}"
                raise ValueError(f"expected logits of shape (N, C) with at least one row, got {got}")
            bad = ~logits.amax(1).isfinite()
            if bool(bad.any()):
                raise ValueError(
                    f"expected finite logits (or -inf for some classes), got NaN, +inf or only -inf in "
                    f"{int(bad.sum())} of {len(logits)} rows, first in row {int(bad.nonzero()[0])}; leave them out"
                )
            check_columns(self.columns, len(logits))
            if self.target is not None:
                target = check_classes(self.target, logits.shape[0], logits.shape[1])
                object.__setattr__(self, "target", target)
            refuse_probabilities(logits)

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def num_classes(self) -> int:
        """The number of classes, C."""
        return self.logits.shape[1]

    def rows(self, chosen: Tensor | slice) -> Tensor:
        """Some of the samples, as tests and monitors take them."""
        return self.logits[chosen]


@dataclass(frozen=True, eq=False)
class ColumnSet:
    """The columns that a predictor has kept of each sample, instead of the logits.

    Attributes:
        statistics: what is known of each sample, without what only logits tell.
        columns: scores computed elsewhere, each (N,), higher = more in-distribution.
        name: the name of the set in tables and messages.
        total, row_numbers, notes: see `LogitSet`.
    """

    stats: SampleStats
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    name: str = "columns"
    total: int | None = None
    row_numbers: Tensor | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    classes: ClassVar[None] = None
    from_probabilities: ClassVar[bool] = False

    def __post_init__(self) -> None:
        with error_prefix(self.name):
            coins = self.stats.coins
            bad = ~(coins.odds + coins.loss + coins.concentration + coins.free_gap).isfinite()
            if bool(bad.any()):
                raise ValueError(f"expected rows of finite numbers, got NaN or infinity in {int(bad.sum())} rows")
            check_columns(self.columns, len(self))
            if self.target is not None:
                check_classes(self.target, len(self), self.num_classes)

    def __len__(self) -> int:
        return len(self.stats.coins.odds)

    @property
    def num_classes(self) -> int:
        """The number of classes, C."""
        return self.stats.num_classes

    @property
    def target(self) -> Tensor | None:
        """(N,) class indices, or None."""
        return self.stats.target

    def rows(self, chosen: Tensor | slice) -> SampleStats:
        """Some of the samples, as tests and monitors take them."""
        some = SampleStats(*(x[chosen] if isinstance(x, Tensor) else x for x in self.stats))  # type: ignore[arg-type]
        return some._replace(coins=Coins(*(x[chosen] for x in self.stats.coins[:5])))


def check_columns(columns: Mapping[str, Tensor], rows: int) -> None:
    """Raise unless all scores are finite, one for each row."""
    for name, values in columns.items():
        if values.shape != (rows,) or not bool(values.isfinite().all()):
            got = f"shape {tuple(values.shape)}, or NaN or inf"
            raise ValueError(f"expected column {name!r} as {rows} finite numbers, got {got}")


def check_classes(target: Tensor, rows: int, num_classes: int, *, ignored: bool = False) -> Tensor:
    """The targets in int64, or an error. With `ignored`, they may be `IGNORED_CLASS`."""
    target = check_target(target, torch.Size([rows]))
    outside = target[~is_class(target, num_classes) & ~((target == IGNORED_CLASS) & ignored)]
    if len(outside):
        raise ValueError(
            f"expected targets in [0, {num_classes}), got {len(outside)} outside, such as {int(outside[0])}; leave "
            f"these rows out"
        )
    return target


def refuse_probabilities(logits: Tensor) -> None:
    """Raise for logits of shape (N, C) if every row is a probability vector, or one of percentages."""
    good = logits.amax(1).isfinite()
    rows = logits if bool(good.all()) else logits[good]
    for total, remedy in ((1, REMEDY), (100, PERCENT_REMEDY)):
        if bool(are_probabilities(rows, 1, total)):
            raise ValueError(probabilities_message("every row", remedy, total))


def log_probabilities(probabilities: Tensor, first: int = 0) -> Tensor:
    """Logits of probabilities of shape (N, C): their logarithms, at least in float32.

    A probability of 0 is replaced by 1e-30. Its logarithm is about -69.1: a target of probability 0 has a large but
    finite loss. A logit of -inf would mean that the class is impossible, and a rounded 0 does not mean that.

    >>> log_probabilities(torch.tensor([[0.5, 0.5, 0.0]]))
    tensor([[ -0.6931,  -0.6931, -69.0776]])
    """
    low, total = probabilities.amin(1), probabilities.sum(1, dtype=torch.float64)
    slack = float(rounding_slack(probabilities, SUM_TOLERANCE))
    bad = ((low < 0) | ((total - 1).abs() > slack)) & ~total.isnan()  # NaN stays NaN
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ValueError(
            f"expected probabilities, not negative and of sum 1 within {slack:g} in every row, got something else in "
            f"{int(bad.sum())} of {len(bad)} rows, first in row {first + row} (smallest {low[row]:.4g}, sum "
            f"{total[row]:.4g}); for logits, leave out from_probabilities=True (--probabilities)"
        )
    wide = probabilities if probabilities.dtype == torch.float64 else probabilities.float()
    return wide.clamp_min(SMALLEST).log()


def floating(tensor: Tensor) -> Tensor:
    """Whole numbers in float64, and floats of one byte in float32."""
    if not tensor.is_floating_point():
        return tensor.double()
    return tensor.float() if tensor.itemsize == 1 else tensor


def class_indices(tensor: Tensor) -> Tensor:
    """Class indices, also from a float column that holds whole numbers, as read from CSV."""
    if tensor.is_floating_point():
        bad = tensor != tensor.round()  # and so is NaN
        if bool(bad.any()):
            raise ValueError(
                f"expected targets that are class indices, got {float(tensor[bad][0]):g} in {int(bad.sum())} of "
                f"{len(tensor)} rows; leave these rows out, or write {IGNORED_CLASS} as their target in a file"
            )
        tensor = tensor.long()
    return as_indices(tensor)


def as_numbers(values: Any, name: str) -> Tensor:
    """A tensor on the CPU, or an error that calls it `name`."""
    try:
        return torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        remedy = "; give a tuple (logits, target), or several sets as a mapping" if name == "logits" else ""
        raise TypeError(
            f"expected {name} as a tensor or an array of numbers, got a {type(values).__name__} ({error}){remedy}"
        ) from None
