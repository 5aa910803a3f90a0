"""Reading the files that are given on the command line."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ..data.atomic import printable
from ..data.files import LogitReader, check_class_names
from ..data.sets import ColumnSet, LogitSet
from ..evaluation.samples import warn_of_gaps


class Files(NamedTuple):
    """Reads every file of a command line in the same way.

    Attributes:
        probabilities: whether files hold probabilities instead of logits.
        classes: names of the classes with commas between them, or a file of them.
        tell: called with a few words when a file is being read.
        max_rows: of a file with more rows, so many random ones are read; None for all.
        seed: of these rows.
    """

    probabilities: bool
    classes: str | None
    tell: Callable[[str], object]
    max_rows: int | None = None
    seed: int = 42

    def open(self, value: str, *, targets: bool = True) -> LogitReader:
        """The reader of [NAME=]PATH."""
        name, path = split_name(value)
        self.tell(f"reading {path}")
        classes = None if self.classes is None else class_names(self.classes)
        return LogitReader(path, name, from_probabilities=self.probabilities, classes=classes, targets=targets)

    def read(self, value: str, *, targets: bool = True) -> LogitSet | ColumnSet:
        """The set in [NAME=]PATH."""
        warn_of_gaps(split_name(value)[1])
        return self.open(value, targets=targets).read(self.max_rows, self.seed)

    def read_named(self, option: str, values: Sequence[str] | None, **how: Any) -> dict[str, Any] | None:
        """The sets of an option that may be repeated, by name; None if there are none."""
        sets: dict[str, Any] = {}
        for value in values or ():
            name, path = split_name(value)
            if name in sets:
                raise ValueError(f"{path}: expected another name for it, got {name!r} twice; use {option} NAME={path}")
            sets[name] = self.read(value, **how)
        return sets or None


def split_name(value: str) -> tuple[str, str]:
    """The name and the path in NAME=PATH. For PATH alone, the name is that of the file without its ending.

    >>> split_name("svhn=ood.npz"), split_name("runs/lr=0.1/noise.csv.gz")
    (('svhn', 'ood.npz'), ('noise', 'runs/lr=0.1/noise.csv.gz'))
    """
    name, equals, source = value.partition("=")
    if not equals or "/" in name or os.sep in name or Path(value).exists():
        return printable(PurePosixPath(value.removesuffix(".gz").replace(os.sep, "/")).stem), value
    if not name or not source:
        raise ValueError(f"expected NAME=PATH or PATH, got {value!r}")
    return printable(name), source


def class_names(value: str) -> list[str]:
    """The names in a text with commas between them, in the lines of a file, or in JSON: a list or `id2label`.

    >>> class_names("cat, dog")
    ['cat', 'dog']
    """
    if not Path(value).is_file():
        return [name.strip() for name in value.split(",")]
    try:
        text = Path(value).read_text(encoding="utf-8-sig")
        if not value.lower().endswith(".json"):
            return [line.strip() for line in text.splitlines() if line.strip()]
        names = json.loads(text)
        names = names.get("id2label", names) if isinstance(names, dict) else names
        return check_class_names([names[str(i)] for i in range(len(names))] if isinstance(names, dict) else names)
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{printable(value)}: expected the name of a class in each line, or JSON: a list or id2label"
        ) from None
