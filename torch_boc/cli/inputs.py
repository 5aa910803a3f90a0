"""The files that a command line names."""

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from ..evaluation.data import LogitSet
from ..evaluation.files import read_logits
from ..functional.checks import are_probabilities

# Names that a report gives itself, and the key by which a mapping is known to be a single set.
RESERVED = ("id", "logits", "train")


def read(path: Path, name: str | None = None, *, like: LogitSet | None = None, labelled: bool = False) -> LogitSet:
    """The logits in a file, with a warning if they look like probabilities.

    Args:
        path: the file.
        name: see `read_logits`.
        like: another set, which must have as many classes.
        labelled: whether there must be targets.
    """
    data = read_logits(path, name)
    if like is not None and data.num_classes != like.num_classes:
        raise ValueError(f"{path}: expected {like.num_classes} classes, as in --id, got {data.num_classes}")
    if labelled and data.target is None:
        raise ValueError(f"{path}: expected targets beside the logits, got none; add an array or a column 'target'")
    if bool(are_probabilities(data.logits, -1)):
        warnings.warn(
            f"{path}: every row is non-negative and sums to 1, which looks like probabilities; "
            "save logits, or the logarithm of the probabilities",
            stacklevel=2,
        )
    return data


def read_named(
    option: str, values: Sequence[str], tell: Callable[[str], None], like: LogitSet, *, labelled: bool = False
) -> dict[str, LogitSet]:
    """The sets of an option that takes NAME=PATH or PATH again and again, by name; see `read`."""
    sets: dict[str, LogitSet] = {}
    for name, path in map(split_name, values):
        if name in sets or name in RESERVED:
            why = "twice" if name in sets else "which is taken"
            raise ValueError(f"{path}: expected a name of its own, got {name!r} {why}; use {option} NAME={path}")
        tell(f"reading {path}")
        sets[name] = read(path, name, like=like, labelled=labelled)
    return sets


def split_name(value: str) -> tuple[str, Path]:
    """NAME=PATH, or PATH alone, which is called as the file without its ending.

    >>> split_name("svhn=ood.npz")[0], split_name("runs/lr=0.1/noise.npz")[0]
    ('svhn', 'noise')
    """
    name, equals, path = value.partition("=")
    if not equals or os.sep in name or Path(value).exists():
        whole = Path(value)
        return whole.name if whole.stem in RESERVED else whole.stem, whole
    if not name or not path:
        raise ValueError(f"expected NAME=PATH or PATH, got {value!r}")
    return name, Path(path)
