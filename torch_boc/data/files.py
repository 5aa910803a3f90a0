"""Logits from files: NumPy, safetensors, PyTorch, Parquet and CSV; never from pickles.

A file holds `logits` (N, C), perhaps `target` (N,), and perhaps further columns (N,), which are scores. Arrays are
mapped into memory, and Parquet is read by row groups, so that a file may be larger than memory.
"""

import os
import pickle
import random
import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from glob import has_magic
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._optional import require, require_pyarrow
from ..core.blocks import block_elements
from ..functional.columns import restore_evidence
from .atomic import printable
from .sets import (
    ColumnSet,
    LogitSet,
    check_rows,
    class_indices,
    floating,
    logarithms,
    printable_keys,
    refuse_probabilities,
    set_of_arrays,
    warn_of_shares,
)
from .sheets import (
    NAMING,
    ContentError,
    CsvSheet,
    Layout,
    ParquetSheet,
    Part,
    Sheet,
    as_tensor,
    layout_of,
    numpy,
    reading,
)

PICKLES = (".pkl", ".pickle", ".joblib")
REFUSAL = (
    "pickles are refused, because opening one can run any code; "
    "save arrays instead: numpy.savez(path, logits=..., target=...) or safetensors"
)
# The most logits of a block, for machines with so many cores that a block of `core.blocks` is large.
MOST_ELEMENTS = 2**22


class LogitBlock(NamedTuple):
    """Some rows of a set.

    Attributes:
        start: the number of the first row, counted among the rows that are read.
        logits: (n, C), floating.
        target: (n,) class indices, or None.
        columns: scores, each (n,).
    """

    start: int
    logits: Tensor
    target: Tensor | None
    columns: Mapping[str, Tensor]


class LogitReader:
    r"""The logits in a file or in many Parquet files: how many there are, blocks of rows, and random rows.

    Args:
        source: a file that ends in .npz, .npy, .safetensors, .pt, .pth, .parquet or .csv; or Parquet files: a folder, a
            pattern such as "out/part-*.parquet", or a URI such as "s3://bucket/folder" that Arrow can read.

            - `.npz`, `.safetensors`, `.pt`, `.pth`: "logits" of shape (N, C), perhaps "target" (or labels, label,
              targets, y, y_true, ground_truth), and further arrays of shape (N,), which are scores, higher = more
              in-distribution. `.pt` may also hold a tensor or a pair (logits, target), and `.npz` the pair of
              `numpy.savez(path, logits, target)`.
            - `.npy`: the logits.
            - `.parquet`, `.csv`: columns logit_0 to logit_{C-1}, or (Parquet) a column "logits" of lists; perhaps a
              target as above; further columns of numbers are scores. `index` and columns without a name are left out.

            Parquet is read by row groups, and arrays are mapped into memory. CSV, compressed arrays of .npz, and the
            old format of torch.save are read as a whole.
        name: the name of the set in tables and messages; by default the name of the file without its ending.
        from_probabilities: whether the file holds probabilities instead of logits; see `logit_set`. They may be called
            "probabilities" or prob_0, prob_1, ... as well.
        classes: names of the classes in their order. Columns of a table may have these names, with or without
            "logit_" in front, and targets may be names instead of numbers.

    Raises:
        FileNotFoundError, ImportError, ValueError, MemoryError: the message is one line that begins with the path.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("logit_0,logit_1,target\n2,0,0\n1,3,1\n0,4,1\n")
    >>> reader = LogitReader(path)
    >>> reader.rows, [(block.start, block.target.tolist()) for block in reader.blocks(2)]
    (3, [(0, [0, 1]), (2, [1])])
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        name: str | None = None,
        *,
        from_probabilities: bool = False,
        classes: Sequence[str] | None = None,
    ) -> None:
        self._path, self.from_probabilities = os.fspath(source), from_probabilities
        self.name = printable(PurePosixPath(self._path).stem if name is None else name)
        with reading(self._path):
            self._classes = None if classes is None else check_class_names(classes)
            self._content = _open(self._path, self._classes, from_probabilities)
            found = self._content.num_classes
            if self._classes is not None and len(self._classes) != found:
                wanted = f"logits of {len(self._classes)} classes, one for each name"
                raise ContentError(f"expected {wanted}, got {found}")
        self.rows, self.num_classes = self._content.rows, self._content.num_classes
        if left := self._content.layout.left_out:
            shown = f"{', '.join(left[:8])}{f' and {len(left) - 8} more' * (len(left) > 8)}"
            warnings.warn(f"{printable(self._path)}: left out {printable(shown)}: not one number a row", stacklevel=2)

    def __iter__(self) -> Iterator[LogitBlock]:
        return self.blocks()

    @property
    def has_logits(self) -> bool:
        """False for a table of the columns that a predictor writes; `read_columns` reads it."""
        return bool(self._content.layout.logits)

    def blocks(self, size: int | None = None, chosen: Tensor | None = None) -> Iterator[LogitBlock]:
        """The rows, at most `size` at a time; with `chosen`, only these rows, whose numbers are in order.

        An error in a row comes when its block is read. That every row is a probability vector is an error if it is so
        in the first block.
        """
        start = 0
        with reading(self._path):
            for part in self._parts(size, chosen):
                if part.logits is None:
                    raise ContentError("expected logits, got the columns of a predictor")
                block = self._block(part.logits, part, start)
                yield block
                start += len(block.logits)

    def read(self, max_rows: int | None = None, seed: int = 42) -> LogitSet:
        """All rows; of more than `max_rows` rows, so many, drawn uniformly without replacement."""
        chosen = self._draw(max_rows, seed)
        with reading(self._path):
            blocks = list(self.blocks(chosen=chosen))
            logits, target = torch.cat([block.logits for block in blocks]), None
            if self._content.layout.target is not None:
                target = torch.cat([block.target for block in blocks if block.target is not None])
            columns = {name: torch.cat([block.columns[name] for block in blocks]) for name in blocks[0].columns}
        total = None if chosen is None else self.rows
        warn_of_shares(logits, self.name)
        return LogitSet(logits, target, columns, self.name, self.from_probabilities, total)

    def read_columns(self, max_rows: int | None = None, seed: int = 42) -> ColumnSet:
        """The same for a table of the columns that a predictor writes."""
        chosen = self._draw(max_rows, seed)
        with reading(self._path), _as_content():
            parts = list(self._parts(None, chosen))
            found = {name: torch.cat([part.scores[name] for part in parts]) for name in parts[0].scores}
            if self._content.layout.target is not None:
                found["target"] = torch.cat([self._targets(part.target, 0) for part in parts])
            columns = printable_keys({name.strip(): found[name.strip()] for name in self._content.layout.scores})
            total = None if chosen is None else self.rows
            return ColumnSet(restore_evidence(found), columns, self.name, total)

    def _draw(self, max_rows: int | None, seed: int) -> Tensor | None:
        """The numbers of random rows, in order; None for all rows."""
        if max_rows is None or self.rows <= max_rows:
            return None
        return torch.tensor(random.Random(seed).sample(range(self.rows), max_rows)).sort().values

    def _parts(self, size: int | None, chosen: Tensor | None) -> Iterator[Part]:
        if size is None:
            size = max(1, min(block_elements(torch.device("cpu")), MOST_ELEMENTS) // max(1, self.num_classes))
        return self._content.parts(size, chosen)

    def _block(self, logits: Tensor, part: Part, start: int) -> LogitBlock:
        with _as_content():
            logits = floating(logits)
            logits = logarithms(logits, start) if self.from_probabilities else logits
            target = None if part.target is None else self._targets(part.target, start)
            columns = printable_keys({name: floating(x, f"column {name!r}") for name, x in part.scores.items()})
            target = check_rows(logits, target, columns, start)
            if start == 0:
                refuse_probabilities(logits)
        return LogitBlock(start, logits, target, columns)

    def _targets(self, values: Any, start: int) -> Tensor:
        """Class indices, from numbers or from names of classes."""
        if isinstance(values, Tensor):
            if any(name.isdigit() and name != str(i) for i, name in enumerate(self._classes or ())):
                raise ContentError(
                    "expected names of classes that are not numbers, got some that are: the numbers in the targets "
                    "could be names or indices of classes; rename the classes, or leave the names out"
                )
            return class_indices(values)
        values = values.tolist() if hasattr(values, "tolist") else values
        text = next((x for x in values if isinstance(x, str)), values[0])
        if self._classes is None or not isinstance(text, str):
            raise ContentError(f"expected numbers of classes in the targets, got {text!r}; {NAMING}")
        places = {name: i for i, name in enumerate(self._classes)}
        for row, x in enumerate(values, start):
            if x not in places:
                raise ContentError(f"expected names of classes in the targets, got {x!r} in row {row}")
        return torch.tensor([places[x] for x in values])


def read_logits(
    path: str | os.PathLike[str],
    name: str | None = None,
    *,
    from_probabilities: bool = False,
    classes: Sequence[str] | None = None,
    max_rows: int | None = None,
    seed: int = 42,
) -> LogitSet:
    """The logits in a file, with the targets and the scores that the file holds.

    Args:
        path: see `LogitReader`, and so for `name`, `from_probabilities` and `classes`.
        name: the name of the set.
        from_probabilities: whether the file holds probabilities.
        classes: names of the classes.
        max_rows: of a file with more rows, so many are drawn uniformly without replacement.
        seed: of these rows.
    """
    return LogitReader(path, name, from_probabilities=from_probabilities, classes=classes).read(max_rows, seed)


def logit_set(source: Any, name: str, *, from_probabilities: bool = False) -> LogitSet:
    """`source` as a LogitSet called `name`.

    Args:
        source: a LogitSet; a path (see `LogitReader`); logits as a tensor or array; a pair (logits, target); or a
            mapping with "logits", perhaps one of labels, label, targets, target, y, y_true or ground_truth, and any
            further columns of one number per sample.
        name: the name of the set in tables and messages. Control characters in it and in the names of columns are
            written as escapes.
        from_probabilities: whether `source` holds probabilities instead of logits: no value is negative, and every row
            sums to 1 within 0.02. Their logarithms are then the logits, with 1e-30 in place of 0. A LogitSet already
            holds logits, and is not changed.
    """
    name = printable(name)
    if isinstance(source, str | os.PathLike):
        return read_logits(source, name, from_probabilities=from_probabilities)
    return set_of_arrays(source, name, from_probabilities=from_probabilities)


def check_class_names(classes: Sequence[str]) -> list[str]:
    """Names of classes, or an error."""
    names = [classes] if isinstance(classes, str) else list(classes)
    if len(names) < 2 or not all(isinstance(name, str) and name for name in names):
        raise ContentError(f"expected at least two names of classes as strings, got {', '.join(map(repr, names))}")
    twice = [name for name in names if names.count(name) > 1] if len({*names}) < len(names) else []
    if twice:
        raise ContentError(f"expected classes with different names, got {twice[0]!r} twice")
    return names


class Arrays:
    """Arrays by name, a pair, or one array, with the attributes and the method `parts` of `Sheet`."""

    def __init__(self, content: Any, shares: bool) -> None:
        if isinstance(content, Mapping) and {*content} == {"arr_0", "arr_1"}:
            content = content["arr_0"], content["arr_1"]
        if not isinstance(content, Mapping):
            content = dict(
                zip(("logits", "target"), content if isinstance(content, tuple) else (content,), strict=False)
            )
        self._content = content
        numbers = [name for name, x in content.items() if _is_column(x)]
        self.layout: Layout = layout_of([*content], numbers, shares=shares)
        if len(self.layout.logits) != 1:
            raise ContentError("expected an array 'logits' of shape (N, C), got one array for each class")
        logits = content[self.layout.logits[0]]
        target = content.get(self.layout.target)
        for values in (logits, target) if isinstance(target, Tensor) else (logits,):
            if not isinstance(values, Tensor) or values.is_complex() or values.layout != torch.strided:
                kind = getattr(values, "dtype", type(values).__name__)
                raise ContentError(f"expected plain arrays of numbers, got {kind} {getattr(values, 'layout', '')}")
        if logits.ndim != 2 or len(logits) == 0:
            raise ContentError(
                f"expected logits of shape (N, C) with at least one row, got shape {tuple(logits.shape)}"
            )
        self.rows, self.num_classes = logits.shape
        for name in (*self.layout.scores, *([] if target is None else [self.layout.target])):
            if not hasattr(content[name], "__len__") or len(content[name]) != self.rows:
                got = tuple(getattr(content[name], "shape", ()))
                raise ContentError(f"expected {name!r} with {self.rows} rows, as many as the logits, got shape {got}")

    def parts(self, size: int, chosen: Tensor | None = None) -> Iterator[Part]:
        """See `Sheet`."""
        layout, number = self.layout, self.rows if chosen is None else len(chosen)
        for start in range(0, number, size):
            rows: Any = slice(start, start + size) if chosen is None else chosen[start : start + size]
            logits = self._content[layout.logits[0]][rows]
            target = None if layout.target is None else self._content[layout.target][rows]
            if isinstance(target, Tensor):
                target = target.squeeze(1) if target.ndim == 2 and target.shape[1] == 1 else target
            yield Part(logits, target, {name: self._content[name][rows] for name in layout.scores})


def _is_column(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 1 and not value.is_complex() and value.dtype != torch.bool


def _open(source: str, classes: Sequence[str] | None, shares: bool) -> Sheet | Arrays:
    """The content of a file, or of many Parquet files."""
    path = Path(source).expanduser()
    many = "://" in source or path.is_dir() or (has_magic(source) and not path.exists())
    if many:
        return ParquetSheet(_find(source), classes, shares)
    suffix = path.suffix.lower()
    if suffix in PICKLES:
        raise ContentError(REFUSAL)
    if suffix not in READERS:
        raise ContentError(f"expected a file that ends in {', '.join(READERS)}, got {suffix or 'no ending'!r}")
    if not path.exists():
        raise FileNotFoundError(f"{printable(source)}: no such file")
    if path.stat().st_size == 0:
        raise ContentError("expected logits, got an empty file")
    with path.open("rb") as file:
        start = file.read(2)
    legacy = start == b"\x80\x02" and suffix in (".pt", ".pth")
    if start[:1] == b"\x80" and start[1:] in (b"\x02", b"\x03", b"\x04", b"\x05") and not legacy:
        raise ContentError(f"it is a pickle, whatever its name says; {REFUSAL}")
    if suffix == ".parquet":
        return ParquetSheet({source: partial(path.open, "rb")}, classes, shares)
    return CsvSheet(path, classes, shares) if suffix == ".csv" else Arrays(READERS[suffix](path), shares)


def _find(source: str) -> Mapping[str, Callable[[], Any]]:
    """The Parquet files of a folder, a pattern or a URI, in the order of their names.

    Files and folders whose names begin with a dot or an underscore are left out, as unfinished files have such names.
    """
    fs = require_pyarrow().fs
    place, question, query = source.partition("?") if "://" in source else (source, "", "")  # options of a file system
    fixed = place
    while has_magic(fixed) and not Path(fixed).exists():
        fixed = str(PurePosixPath(fixed).parent) if "://" not in fixed else fixed.rpartition("/")[0]
    if "://" in source:
        system, base = fs.FileSystem.from_uri(fixed + question + query)
    else:
        system, base = fs.LocalFileSystem(), Path(fixed).expanduser().absolute().as_posix()
    pattern = place[len(fixed) :].lstrip("/") or "*.parquet"
    info = system.get_file_info(base)
    if info.is_file:
        return {base: partial(system.open_input_file, base)}
    inside = system.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
    names = sorted(x.path[len(base) :].lstrip("/") for x in inside if x.is_file)
    deep = fixed == place  # a folder has files in folders inside of it, and a pattern says where they are
    names = [x for x in names if fnmatchcase(x, pattern) and (deep or x.count("/") == pattern.count("/"))]
    found = [f"{base}/{name}" for name in names if not re.search(r"(^|/)[._]", name)]
    if not found:
        raise FileNotFoundError(f"{printable(source)}: expected Parquet files, got none")
    return {name: partial(system.open_input_file, name) for name in found}


@contextmanager
def _as_content() -> Iterator[None]:
    """What is wrong with rows is an error about the content of the file."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ContentError(str(error)) from None


def _read_npz(path: Path) -> dict[str, Any]:
    """The arrays of an `.npz` file. Those that are not compressed are mapped into memory."""
    _expect_start(path, b"PK", "a zip archive as made by numpy.savez")
    found = {}
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        for part in (part for part in archive.infolist() if part.filename.endswith(".npy")):
            name = part.filename.removesuffix(".npy")
            with archive.open(part) as stream:
                header = _header(stream, f"array {name!r}")
                if part.compress_type == zipfile.ZIP_STORED:
                    file.seek(part.header_offset + 26)  # where the lengths of the name and of the extra field stand
                    offset = part.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))
                    found[name] = _mapped(path, header, offset + stream.tell())
                else:
                    stream.seek(0)
                    found[name] = as_tensor(numpy().lib.format.read_array(stream, allow_pickle=False))
    return found


def _read_npy(path: Path) -> Any:
    """The one array of an `.npy` file, mapped into memory."""
    _expect_start(path, b"\x93NUMPY", "an array as made by numpy.save")
    with path.open("rb") as file:
        return _mapped(path, _header(file, "the array"), file.tell())


def _header(stream: Any, what: str) -> tuple[tuple[int, ...], bool, Any]:
    """The shape of an array in NumPy's format, whether it is in the order of Fortran, and its dtype."""
    form = numpy().lib.format
    read = form.read_array_header_1_0 if form.read_magic(stream) == (1, 0) else form.read_array_header_2_0
    shape, by_column, kind = read(stream)
    if kind.hasobject:
        raise ContentError(f"{what} holds Python objects; {REFUSAL}")
    return shape, by_column, kind


def _mapped(path: Path, header: tuple[tuple[int, ...], bool, Any], offset: int) -> Any:
    """An array of a file, as a copy that is made when it is written to."""
    shape, by_column, kind = header
    if 0 in shape:
        return as_tensor(numpy().empty(shape, kind))
    return as_tensor(numpy().memmap(path, kind, "c", offset, shape, "F" if by_column else "C"))


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    library = require("safetensors", "torch", purpose="reading it needs").torch
    found: dict[str, Tensor] = library.load_file(path) if _has_plain_name(path) else library.load(path.read_bytes())
    return found


def _read_torch(path: Path) -> Any:
    """A tensor, a pair or a mapping of tensors saved with `torch.save`."""
    zipped = zipfile.is_zipfile(path)
    with path.open("rb") as file:
        start = file.read(2)
    if not zipped and start != b"\x80\x02":  # the old format of torch.save
        raise ValueError("it was not written by torch.save" if start != b"PK" else "the end of the archive is missing")
    try:
        with path.open("rb") as file:
            mapped = zipped and _has_plain_name(path)
            content = torch.load(path if mapped else file, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise ContentError(
            "expected only tensors, got other objects; reading these can run any code, so they are refused; "
            "save tensors: torch.save({'logits': ..., 'target': ...}, path)"
        ) from error
    if isinstance(content, Mapping):
        return {str(name): _number_list(value) for name, value in content.items()}
    if isinstance(content, list | tuple) and len(content) == 2:
        return tuple(_number_list(value) for value in content)
    if isinstance(content, Tensor):
        return content
    raise ContentError(
        f"expected a tensor, a pair (logits, target) or a mapping with 'logits', got a {type(content).__name__}"
    )


def _number_list(value: Any) -> Any:
    """A tensor, if the value is a list of numbers; any other value unchanged."""
    try:
        return torch.as_tensor(value) if isinstance(value, list | tuple) else value
    except (TypeError, ValueError, RuntimeError):
        return value


def _has_plain_name(path: Path) -> bool:
    """Whether the path is valid UTF-8, which libraries need that open the file themselves."""
    return printable(str(path)) == str(path)


def _expect_start(path: Path, start: bytes, what: str) -> None:
    """Raise unless the file begins with `start`."""
    with path.open("rb") as file:
        if file.read(len(start)) != start:
            raise ValueError(f"it does not begin like {what}")


READERS: Mapping[str, Any] = {
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".safetensors": _read_safetensors,
    ".pt": _read_torch,
    ".pth": _read_torch,
    ".parquet": ParquetSheet,
    ".csv": CsvSheet,
}
