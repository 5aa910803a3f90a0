"""`LogitSet`: logits with their targets and scores, made from tensors, arrays, pairs or mappings."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..functional.checks import as_indices, check_target
from .atomic import printable
from .checks import FiniteColumn, FiniteRows, Targets, check_shape
from .finding import TARGET_NAMES
from .probabilities import logarithms, refuse_probabilities, warn_of_shares


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

    def __post_init__(self) -> None:
        with naming(self.name):
            check_shape(self.logits)
            finite = FiniteRows()
            finite.add(self.logits)
            finite.finish()
            refuse_probabilities(self.logits)
            for name, values in self.columns.items():
                column = FiniteColumn(name)
                column.add(values)
                column.finish(values.shape, len(self))
            if self.target is not None:
                object.__setattr__(self, "target", check_target(self.target, self.logits.shape[:1]))
                targets = Targets(self.num_classes)
                targets.add(self.target)
                targets.finish(len(self))

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def num_classes(self) -> int:
        """The number of classes, C."""
        return self.logits.shape[1]


def set_of_arrays(source: Any, name: str, *, from_probabilities: bool = False) -> LogitSet:
    """The same as `logit_set`, but `source` cannot be a path, and `name` must be printable."""
    if isinstance(source, LogitSet):
        return replace(source, name=name, columns=printable_keys(source.columns))
    with naming(name):
        logits, target, columns = _parts(source)
        if from_probabilities:
            logits = logarithms(logits)
        columns = printable_keys(columns)
    warn_of_shares(logits, name)
    return LogitSet(logits, target, columns, name, from_probabilities)


def printable_keys(columns: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The columns, with control characters in their names written as escapes."""
    if all(printable(name) == name for name in columns):
        return columns
    result: dict[str, Tensor] = {}
    for name, column in columns.items():
        if result.setdefault(printable(name), column) is not column:
            raise ValueError(f"expected columns whose names differ when they are printed, got {name!r} twice")
    return result


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Puts the name of the set in front of the message of an error."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def _parts(source: Any) -> tuple[Tensor, Tensor | None, Mapping[str, Tensor]]:
    """Logits, targets and columns."""
    if isinstance(source, Mapping):
        return _from_mapping(source)
    if isinstance(source, tuple) and len(source) == 2:
        return floating(source[0]), class_indices(source[1]), {}
    return floating(source), None, {}


def _from_mapping(source: Mapping[str, Any]) -> tuple[Tensor, Tensor | None, Mapping[str, Tensor]]:
    if "logits" not in source:
        raise ValueError(f"expected a mapping with 'logits', got the keys {', '.join(map(str, source))}")
    found = [key for key in TARGET_NAMES if source.get(key) is not None]
    if len(found) > 1:
        raise ValueError(f"expected one of {', '.join(TARGET_NAMES)}, got {' and '.join(found)}")
    target = class_indices(source[found[0]]) if found else None
    further = {key: value for key, value in source.items() if key not in ("logits", *TARGET_NAMES)}
    for key in further:
        if not isinstance(key, str) or not key:
            raise ValueError(f"expected names of columns as strings, got {key!r}")
    columns = {key: floating(value, f"column {key!r}") for key, value in further.items()}
    return floating(source["logits"]), target, columns


def _tensor(values: Any, what: str) -> Tensor:
    try:
        return torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        remedy = "; give a tuple (logits, target), or several sets as a mapping" if what == "logits" else ""
        raise TypeError(
            f"expected {what} as a tensor or an array of numbers, got a {type(values).__name__} ({error}){remedy}"
        ) from None


def floating(values: Any, what: str = "logits") -> Tensor:
    tensor = _tensor(values, what)
    return tensor if tensor.is_floating_point() else tensor.double()


def class_indices(values: Any) -> Tensor:
    """Class indices, also from a float column that holds whole numbers, as read from CSV."""
    tensor = _tensor(values, "target")
    if tensor.is_floating_point() and bool((tensor == tensor.round()).all()):
        tensor = tensor.long()
    return as_indices(tensor)
