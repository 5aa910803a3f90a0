"""`LogitSet`: logits with their targets and scores; the checks of its rows; probabilities in place of logits."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.coins import Coins
from ..core.tally import is_class
from ..functional.checks import are_probabilities, as_indices, check_logits, check_target, probabilities_message
from ..functional.evidence import Evidence
from .atomic import printable
from .finding import TARGET_NAMES

# How far the sum of a row may be from 1: probabilities are often written with three digits.
SUM_TOLERANCE = 0.02
# A probability of 0 is replaced by this number, whose logarithm is about -69.1.
SMALLEST = 1e-30
REMEDY = (
    "give the logits, or from_probabilities=True (--probabilities on the command line), which takes the logarithm; "
    "if they are logits, add 1 to every logit of every set, which does not change the softmax"
)


@dataclass(frozen=True, eq=False)
class LogitSet:
    """The logits of a set of samples, with their targets and scores.

    Attributes:
        logits: (N, C), floating.
        target: (N,) class indices, or None.
        columns: scores computed elsewhere, each (N,), higher = more in-distribution.
        name: the name of the set in tables and messages.
        from_probabilities: whether the logits are logarithms of probabilities. After a softmax the energy is always 0,
            so that an evaluation leaves it out.
        total: the number of rows that these were drawn from; None if these are all.

    >>> from torch_boc.data import logit_set
    >>> data = logit_set((torch.tensor([[2.0, 0.0], [0.0, 1.0]]), [0, 1]), "test")
    >>> len(data), data.num_classes, data.target
    (2, 2, tensor([0, 1]))
    """

    logits: Tensor
    target: Tensor | None = None
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    name: str = "logits"
    from_probabilities: bool = False
    total: int | None = None

    def __post_init__(self) -> None:
        with naming(self.name):
            object.__setattr__(self, "target", check_rows(self.logits, self.target, self.columns))
            refuse_probabilities(self.logits)

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
    """The columns that a predictor has kept of each sample, in place of the logits.

    Attributes:
        evidence: what is known of each sample, without what only logits tell.
        columns: scores computed elsewhere, each (N,), higher = more in-distribution.
        name: the name of the set in tables and messages.
        total: the number of rows that these were drawn from; None if these are all.
    """

    evidence: Evidence
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    name: str = "columns"
    total: int | None = None
    from_probabilities: ClassVar[bool] = False

    def __post_init__(self) -> None:
        with naming(self.name):
            coins = self.evidence.coins
            bad = ~(coins.odds + coins.loss + coins.concentration + coins.free_gap).isfinite()
            if bool(bad.any()):
                raise ValueError(f"expected rows of finite numbers, got NaN or infinity in {int(bad.sum())} rows")
            _check_columns(self.columns, len(self))
            _check_target(self.target, self.num_classes)

    def __len__(self) -> int:
        return len(self.evidence.coins.odds)

    @property
    def num_classes(self) -> int:
        """The number of classes, C."""
        return self.evidence.num_classes

    @property
    def target(self) -> Tensor | None:
        """(N,) class indices, or None."""
        return self.evidence.target

    def rows(self, chosen: Tensor | slice) -> Evidence:
        """Some of the samples, as tests and monitors take them."""
        some = Evidence(*(x[chosen] if isinstance(x, Tensor) else x for x in self.evidence))  # type: ignore[arg-type]
        return some._replace(coins=Coins(*(x[chosen] for x in self.evidence.coins[:5])))


def set_of_arrays(source: Any, name: str, *, from_probabilities: bool = False) -> LogitSet:
    """The same as `logit_set`, but `source` cannot be a path, and `name` must be printable."""
    if isinstance(source, LogitSet):
        return replace(source, name=name, columns=printable_keys(source.columns))
    with naming(name):
        target: Tensor | None = None
        columns: Mapping[str, Tensor] = {}
        if isinstance(source, Mapping):
            source, target, columns = _from_mapping(source)
        elif isinstance(source, tuple) and len(source) == 2:
            source, target = source[0], class_indices(source[1])
        logits = floating(source)
        logits = logarithms(logits) if from_probabilities else logits
        columns = printable_keys(columns)
    data = LogitSet(logits, target, columns, name, from_probabilities)
    warn_of_shares(logits, name)
    return data


def check_rows(logits: Tensor, target: Tensor | None, columns: Mapping[str, Tensor], first: int = 0) -> Tensor | None:
    """The targets in int64, or an error if these rows cannot be a set. `first` is the number of the first row."""
    check_logits(logits, -1)
    if logits.ndim != 2 or len(logits) == 0:
        got = f"shape {tuple(logits.shape)}"
        raise ValueError(f"expected logits of shape (N, C) with at least one row, got {got}")
    bad = ~logits.amax(1).isfinite()
    if bool(bad.any()):
        raise ValueError(
            f"expected finite logits (or -inf for some classes), got NaN, +inf or only -inf in {int(bad.sum())} of "
            f"{len(logits)} rows, first in row {first + int(bad.nonzero()[0])}; leave these rows out"
        )
    _check_columns(columns, len(logits))
    target = None if target is None else check_target(target, logits.shape[:1])
    _check_target(target, logits.shape[1])
    return target


def _check_columns(columns: Mapping[str, Tensor], rows: int) -> None:
    for name, values in columns.items():
        finite = bool(values.isfinite().all())
        if values.shape != (rows,) or not finite:
            raise ValueError(
                f"expected column {name!r} as {rows} finite numbers, got shape {tuple(values.shape)}"
                + ("" if finite else " with NaN or inf")
            )


def _check_target(target: Tensor | None, num_classes: int) -> None:
    outside = torch.empty(0) if target is None else target[~is_class(target, num_classes)]
    if len(outside):
        raise ValueError(
            f"expected targets in [0, {num_classes}), got {len(outside)} outside, such as {int(outside[0])}"
        )


def refuse_probabilities(logits: Tensor) -> None:
    """Raise for logits of shape (N, C) if every row is a probability vector."""
    if bool(are_probabilities(logits, 1, slack=SUM_TOLERANCE)):
        raise ValueError(probabilities_message("every row", REMEDY))


def warn_of_shares(logits: Tensor, name: str) -> None:
    """Warn if all logits lie in [0, 1] and are not all equal: the logits of a network hardly ever do so."""
    low, high = (float(x) for x in logits.aminmax())
    if 0 <= low < high <= 1:
        sums = logits.sum(1, dtype=torch.float64)
        warnings.warn(
            f"{name}: every value lies in [0, 1], as probabilities do, but the rows sum to {float(sums.min()):.4g} up "
            f"to {float(sums.max()):.4g}, so they are used as logits; if they are not, give the logits instead",
            stacklevel=4,
        )


def logarithms(probabilities: Tensor, first: int = 0) -> Tensor:
    """Logits of probabilities of shape (N, C): their logarithms, at least in float32.

    A probability of 0 is replaced by 1e-30. Its logarithm is about -69.1, so that a target of probability 0 has a large
    but finite loss. A logit of -inf would mean that the class is impossible, and a rounded 0 does not mean that.

    >>> logarithms(torch.tensor([[0.5, 0.5, 0.0]]))
    tensor([[ -0.6931,  -0.6931, -69.0776]])
    """
    if probabilities.ndim == 2 and len(probabilities):
        low, total = probabilities.amin(1), probabilities.sum(1, dtype=torch.float64)
        bad = ~((low >= 0) & ((total - 1).abs() <= SUM_TOLERANCE))  # a row with NaN is bad too
        if bool(bad.any()):
            row = int(bad.nonzero()[0])
            raise ValueError(
                f"expected probabilities, not negative and of sum 1 within {SUM_TOLERANCE} in every row, got something "
                f"else in {int(bad.sum())} of {len(bad)} rows, first in row {first + row} (smallest {low[row]:.4g}, "
                f"sum {total[row]:.4g}); for logits, leave out from_probabilities=True (--probabilities)"
            )
    wide = probabilities if probabilities.dtype == torch.float64 else probabilities.float()
    return wide.clamp_min(SMALLEST).log()


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Puts the name of the set in front of the message of an error."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def printable_keys(columns: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The columns, with control characters in their names written as escapes."""
    result = {printable(name): column for name, column in columns.items()}
    if len(result) < len(columns):
        raise ValueError(f"expected columns whose names differ when they are printed, got {', '.join(result)}")
    return result


def floating(values: Any, what: str = "logits") -> Tensor:
    """Numbers as a tensor on the CPU; whole numbers become float64, and floats of one byte float32."""
    tensor = _tensor(values, what)
    if not tensor.is_floating_point():
        return tensor.double()
    return tensor.float() if tensor.itemsize == 1 else tensor


def class_indices(values: Any) -> Tensor:
    """Class indices, also from a float column that holds whole numbers, as read from CSV."""
    tensor = _tensor(values, "target")
    if tensor.is_floating_point() and bool((tensor == tensor.round()).all()):
        tensor = tensor.long()
    return as_indices(tensor)


def find_target_name(names: Any) -> Any:
    """The one of the names that is a name of targets, whatever its case; None if there is none."""
    found = [name for name in names if str(name).strip().lower() in TARGET_NAMES]
    if len(found) > 1:
        raise ValueError(f"expected one of {', '.join(TARGET_NAMES)}, got {' and '.join(map(str, found))}")
    return found[0] if found else None


def _from_mapping(source: Mapping[str, Any]) -> tuple[Any, Tensor | None, dict[str, Tensor]]:
    if "logits" not in source:
        raise ValueError(f"expected a mapping with 'logits', got the keys {', '.join(map(str, source))}")
    known = {key: value for key, value in source.items() if value is not None}
    named = find_target_name(known)
    columns = {}
    for key, value in known.items():
        if not isinstance(key, str) or not key:
            raise ValueError(f"expected names of columns as strings, got {key!r}")
        if key not in ("logits", named):
            columns[key] = floating(value, f"column {key!r}")
    return source["logits"], None if named is None else class_indices(source[named]), columns


def _tensor(values: Any, what: str) -> Tensor:
    try:
        return torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        remedy = "; give a tuple (logits, target), or several sets as a mapping" if what == "logits" else ""
        raise TypeError(
            f"expected {what} as a tensor or an array of numbers, got a {type(values).__name__} ({error}){remedy}"
        ) from None
