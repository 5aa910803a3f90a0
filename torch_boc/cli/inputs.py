"""Reading the files that are given on the command line."""

import os
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..data.atomic import printable
from ..data.files import LogitReader, read_logits
from ..data.sets import LogitSet

# The endings of files that can be read, for help texts.
ENDINGS = ".npz, .npy, .safetensors, .pt, .pth, .parquet or .csv"
# Names that a report uses for its own sets, and the key that marks a mapping as a single set.
RESERVED_NAMES = ("id", "logits", "train")


@dataclass(frozen=True)
class FileReader:
    """Reads every file of a command line in the same way.

    Attributes:
        probabilities: whether files hold probabilities instead of logits.
        classes: names of the classes with commas between them, or a file with one name in each line.
        progress: called with a few words when a file is being read.
    """

    probabilities: bool = False
    classes: str | None = None
    progress: Callable[[str], object] = lambda message: None

    def read(
        self,
        path: Path,
        name: str | None = None,
        *,
        like: LogitSet | None = None,
        given: str = "--id",
        labelled: bool = False,
    ) -> LogitSet:
        """The logits in a file.

        Args:
            path: the file.
            name: see `read_logits`.
            like: another set, which must have the same number of classes.
            given: what the command line calls that set.
            labelled: whether there must be targets.
        """
        self.progress(f"reading {path}")
        data = read_logits(path, name, from_probabilities=self.probabilities, classes=self.names())
        if like is not None and data.num_classes != like.num_classes:
            raise ValueError(f"{path}: expected {like.num_classes} classes, as in {given}, got {data.num_classes}")
        if labelled and data.target is None:
            raise ValueError(f"{path}: expected targets beside the logits, got none; add an array or a column 'target'")
        return data

    def stream(self, path: Path) -> LogitReader:
        """The logits in a file, some rows at a time."""
        return LogitReader(path, from_probabilities=self.probabilities, classes=self.names())

    def names(self) -> list[str] | None:
        """The names of the classes, if they are given."""
        return None if self.classes is None else class_names(self.classes)

    def read_named(
        self, option: str, values: Sequence[str], like: LogitSet | None = None, *, labelled: bool = False
    ) -> dict[str, LogitSet]:
        """The sets of an option that may be repeated, by name. Each value is NAME=PATH or PATH; see `read`."""
        sets: dict[str, LogitSet] = {}
        for name, path in map(split_name, values):
            check_name(option, name, path, sets)
            sets[name] = self.read(path, name, like=like, labelled=labelled)
        return sets


def split_name(value: str) -> tuple[str, Path]:
    """The name and the path in NAME=PATH. For PATH alone, the name is that of the file without its ending.

    >>> split_name("svhn=ood.npz")[0], split_name("runs/lr=0.1/noise.npz")[0]
    ('svhn', 'noise')
    """
    name, source = split_source(value)
    return name, Path(source)


def split_source(value: str) -> tuple[str, str]:
    """The same for a source that need not be a file, such as a folder, a pattern or a URI."""
    name, equals, source = value.partition("=")
    if not equals or os.sep in name or Path(value).exists():
        whole = Path(value)
        return printable(whole.name if whole.stem in RESERVED_NAMES else whole.stem), value
    if not name or not source:
        raise ValueError(f"expected NAME=PATH or PATH, got {value!r}")
    return printable(name), source


def check_name(option: str, name: str, path: str | Path, taken: Container[str]) -> None:
    """Raise if the name of a set is taken or reserved."""
    if name in taken or name in RESERVED_NAMES:
        why = "twice" if name in taken else "which is reserved"
        raise ValueError(f"{path}: expected another name for it, got {name!r} {why}; use {option} NAME={path}")


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
