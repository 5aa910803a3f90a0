"""Reading the files that are given on the command line."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ..data.errors import printable
from ..data.files import LogitReader
from ..data.logit_set import ColumnSet, LogitSet
from ..evaluation.inputs import warn_if_incomplete


class Files(NamedTuple):
    """Reads every file of a command line in the same way.

    Attributes:
        probabilities: whether files hold probabilities instead of logits.
        classes: names of the classes with commas between them, or a file of them.
        tell: called with a few words when a file is being read.
        max_rows: from a file with more rows, this many random ones are read; None for all.
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
        given = self.classes
        classes = given and (int(given) if given.isdecimal() else class_names(given))
        return LogitReader(path, name, from_probabilities=self.probabilities, classes=classes, targets=targets)

    def read(self, value: str, *, targets: bool = True) -> LogitSet | ColumnSet:
        """The set in [NAME=]PATH."""
        warn_if_incomplete(split_name(value)[1])
        return self.open(value, targets=targets).read(self.max_rows, self.seed)

    def read_named(self, option: str, values: Sequence[str] | None, **options: Any) -> dict[str, Any] | None:
        """The sets of an option that may be repeated, by name; None if there are none."""
        return {name: self.read(value, **options) for name, value in by_name(values, f"{option} ").items()} or None


def by_name(values: Sequence[str] | None, option: str = "") -> dict[str, str]:
    """Each [NAME=]PATH by its name; raises if two have the same name."""
    values_by_name: dict[str, str] = {}
    for value in values or ():
        name, path = split_name(value)
        if name in values_by_name:
            raise ValueError(f"{path}: expected another name for it, got {name!r} twice; use {option}NAME={path}")
        values_by_name[name] = value
    return values_by_name


def split_name(value: str) -> tuple[str, str]:
    """The name and the path in NAME=PATH. Without NAME it is that of the file, or of the folder of a report.json.

    >>> split_name("svhn=ood.npz"), split_name("runs/lr=0.1/noise.csv.gz"), split_name("vit/report.json")
    (('svhn', 'ood.npz'), ('noise', 'runs/lr=0.1/noise.csv.gz'), ('vit', 'vit/report.json'))
    """
    name, equals, source = value.partition("=")
    if not equals or "/" in name or os.sep in name or Path(value).exists():
        path = PurePosixPath(value.removesuffix(".gz").replace(os.sep, "/"))
        return printable(path.parent.name or path.stem if path.name == "report.json" else path.stem), value
    if not name or not source:
        raise ValueError(f"expected NAME=PATH or PATH, got {value!r}")
    return printable(name), source


def class_names(value: str) -> list[str]:
    """The names in a text with commas between them, in the lines of a file, or in `id2label` of the config of a model.

    >>> class_names("cat, dog")
    ['cat', 'dog']
    """
    if not Path(value).is_file():
        return [name.strip() for name in value.split(",")]
    try:
        text = Path(value).read_text(encoding="utf-8-sig")
        if not value.lower().endswith(".json"):
            return [line.strip() for line in text.splitlines() if line.strip()]
        names = json.loads(text)["id2label"]
        return [names[str(i)] for i in range(len(names))]
    except (ValueError, KeyError, TypeError):
        expected = "expected the name of a class in each line, or JSON with id2label"
        raise ValueError(f"{printable(value)}: {expected}") from None
