"""Reading the files that are given on the command line."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.atomic import printable
from ..data.files import LogitReader
from ..data.sets import ColumnSet, LogitSet

# Names that a report uses for its own sets, and the key that marks a mapping as a single set.
RESERVED_NAMES = ("id", "logits", "train")


@dataclass(frozen=True)
class FileReader:
    """Reads every file of a command line in the same way.

    Attributes:
        probabilities: whether files hold probabilities instead of logits.
        classes: names of the classes with commas between them, or a file with one name in each line.
        progress: called with a few words when a file is being read.
        max_rows: of a file with more rows, so many random ones are read; None for all.
        seed: of these rows.
    """

    probabilities: bool = False
    classes: str | None = None
    progress: Callable[[str], object] = lambda message: None
    max_rows: int | None = None
    seed: int = 42

    def read(
        self,
        path: str | Path,
        name: str | None = None,
        *,
        like: LogitSet | ColumnSet | None = None,
        given: str = "--id",
        labelled: bool = False,
        columns: bool = False,
    ) -> Any:
        """The logits in a file, as a LogitSet.

        Args:
            path: the file, or what else `LogitReader` takes.
            name: the name of the set; by default that of the file.
            like: another set, which must have the same number of classes.
            given: what the command line calls that set.
            labelled: whether there must be targets.
            columns: whether the file may hold the columns of a predictor instead, which are a ColumnSet.
        """
        self.progress(f"reading {path}")
        if columns:
            from ..evaluation.samples import warn_of_gaps

            warn_of_gaps(path)
        reader = self.stream(path, name)
        read = reader.read_columns if columns and not reader.has_logits else reader.read
        data = read(self.max_rows, self.seed)
        if like is not None and data.num_classes != like.num_classes:
            raise ValueError(f"{path}: expected {like.num_classes} classes, as in {given}, got {data.num_classes}")
        if labelled and data.target is None:
            raise ValueError(f"{path}: expected targets beside the logits, got none; add an array or a column 'target'")
        return data

    def stream(self, path: str | Path, name: str | None = None) -> LogitReader:
        """The logits in a file, some rows at a time."""
        named = None if self.classes is None else class_names(self.classes)
        return LogitReader(path, name, from_probabilities=self.probabilities, classes=named)

    def read_named(self, option: str, values: Sequence[str], **how: Any) -> dict[str, Any]:
        """The sets of an option that may be repeated, by name. Each value is NAME=PATH or PATH; see `read`."""
        sets: dict[str, Any] = {}
        for name, path in map(split_name, values):
            if name in sets or name in RESERVED_NAMES:
                why = "twice" if name in sets else "which is reserved"
                raise ValueError(f"{path}: expected another name for it, got {name!r} {why}; use {option} NAME={path}")
            sets[name] = self.read(path, name, **how)
        return sets


def split_name(value: str) -> tuple[str, str]:
    """The name and the path in NAME=PATH. For PATH alone, the name is that of the file without its ending.

    >>> split_name("svhn=ood.npz")[0], split_name("runs/lr=0.1/noise.npz")[0]
    ('svhn', 'noise')
    """
    name, equals, source = value.partition("=")
    if not equals or os.sep in name or Path(value).exists():
        whole = Path(value)
        return printable(whole.name if whole.stem in RESERVED_NAMES else whole.stem), value
    if not name or not source:
        raise ValueError(f"expected NAME=PATH or PATH, got {value!r}")
    return printable(name), source


def class_names(value: str) -> list[str]:
    """The names in a text with commas between them, or in the lines of a file.

    >>> class_names("cat, dog")
    ['cat', 'dog']
    """
    if not Path(value).is_file():
        return [name.strip() for name in value.split(",")]
    try:
        lines = Path(value).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{value}: expected a text file in UTF-8 with the name of a class in each line") from None
    return [line.strip() for line in lines if line.strip()]
