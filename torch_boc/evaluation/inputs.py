"""The arguments of an evaluation, checked: the sets are on the CPU and have different names, numbers are in range."""

import operator
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from ..data.sets import LogitSet
from ..data.sources import logit_set

TEST = "id"


def single_set(source: Any, name: str, *, from_probabilities: bool = False) -> LogitSet:
    """The set as a LogitSet on the CPU, where all the work is done."""
    data = logit_set(source, name, from_probabilities=from_probabilities)
    target = None if data.target is None else data.target.detach().cpu().long()
    columns = {key: column.detach().cpu() for key, column in data.columns.items()}
    return replace(data, logits=data.logits.detach().cpu(), target=target, columns=columns)


def several_sets(source: Any, name: str, *, from_probabilities: bool = False) -> dict[str, LogitSet]:
    """The sets by name: a single set is called `name`, and the keys of a mapping are the names of its sets."""
    if source is None:
        return {}
    if not isinstance(source, Mapping) or _is_array(source.get("logits")):
        return {name: single_set(source, name, from_probabilities=from_probabilities)}
    for key in source:
        if not isinstance(key, str) or not key:
            raise ValueError(f"{name}: expected names of sets as strings, got {key!r}")
    found = [single_set(value, key, from_probabilities=from_probabilities) for key, value in source.items()]
    for i, data in enumerate(found):
        if any(data.name == other.name for other in found[:i]):
            raise ValueError(f"{name}: expected names that differ when they are printed, got {data.name!r} twice")
    return {data.name: data for data in found}


def _is_array(value: Any) -> bool:
    """Whether the value is an array of logits. If not, it is a set that is called "logits"."""
    return hasattr(value, "shape") or isinstance(value, list)


def check_sets(test: LogitSet, *groups: Mapping[str, LogitSet]) -> None:
    """Raise unless all sets have different names and as many classes as the test set, and the needed targets.

    Args:
        test: the test set.
        groups: the OOD sets, and then groups of sets that must have targets.
    """
    names = [TEST]
    for group in groups:
        for name, data in group.items():
            if name in names:
                raise ValueError(f"expected a different name for each set, got {name!r} twice; rename one")
            names.append(name)
            if data.num_classes != test.num_classes:
                raise ValueError(
                    f"expected the same number of classes in every set, got {test.num_classes} in {TEST!r} and "
                    f"{data.num_classes} in {name!r}"
                )
            if data.from_probabilities != test.from_probabilities:
                kinds = ["probabilities" if x.from_probabilities else "logits" for x in (test, data)]
                raise ValueError(
                    f"expected all sets as logits or all as probabilities, got {kinds[0]} in {TEST!r} and {kinds[1]} "
                    f"in {name!r}; a softmax changes what scores of several sets are compared by"
                )
            if group is not groups[0] and data.target is None:
                raise ValueError(f"{name}: expected logits with targets, got none; give (logits, target)")


def labelled(data: LogitSet) -> tuple[Tensor, Tensor]:
    """The logits and the targets of a set that was checked to have targets."""
    assert data.target is not None
    return data.logits, data.target


def check_positive(**values: int) -> list[int]:
    for name, value in values.items():
        if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < 1:
            raise ValueError(f"expected {name} as a positive integer, got {value!r}")
    return [operator.index(value) for value in values.values()]


def check_names(given: Collection[str], known: Collection[str], what: str) -> None:
    """Raise unless every name is a known one. A single string is refused, because it is a collection of letters."""
    unknown = [given] if isinstance(given, str) else [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"expected {what} as a list of names among {', '.join(known)}, got {unknown[0]!r}")


def check_seed(value: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < 0:
        raise ValueError(f"expected seed as an integer of at least 0, got {value!r}")
    return operator.index(value)
