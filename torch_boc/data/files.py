"""Logits from files: NumPy, safetensors, PyTorch, Parquet and CSV; never from pickles.

A file holds `logits` (N, C), perhaps `target` (N,), further columns of numbers (N,), which are scores, and columns of
text, such as file names. Arrays are memory-mapped, and Parquet is read by row groups: files can exceed RAM.
"""

import os
import pickle
import random
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from glob import glob, has_magic
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._optional import require, require_pyarrow
from ..core.chunking import block_elements
from ..core.schema import COINS
from ..functional.table_columns import COLUMNS, LIST_COLUMNS, TARGET_COLUMN, restore_sample_stats
from . import logit_set
from .errors import ContentError, error_prefix, file_errors, printable
from .extract import TARGET_NAMES
from .logit_set import IGNORED_CLASS, ColumnSet, LogitSet
from .tables import NUMBER, NUMBERS, TEXT, Arrays, ParquetTable, as_tensor, numpy, read_text

REFUSAL = (
    "pickles are refused, because opening one can run any code; "
    "save arrays instead: numpy.savez(path, logits=..., target=...) or safetensors"
)
CONTRACT = (
    "'logits' (in tables: columns logit_0, logit_1, ..., or 'logits' of lists), perhaps 'target', and further columns "
    "of one number a row, which are scores"
)
NUMBER_REMEDY = "give it as classes= (--classes on the command line)"
NAMING = "name the classes in their order with classes=[...] (--classes on the command line)"
# Columns that libraries add when they save a table, and predicted classes: neither are scores.
NO_SCORES = ("", "index", "unnamed: 0", "__index_level_0__", "prediction")
# The decisions that a predictor writes.
FLAGS = ("review", "accepted")
# The most logits of a block, for machines with so many cores that a block of `core.chunking` is large.
MOST_ELEMENTS = 2**22


class LogitBlock(NamedTuple):
    """Some rows of a file. A row may have NaN in its logits, and targets may be `IGNORED_CLASS`.

    Attributes:
        row_numbers: (n,) the numbers of the rows in the file.
        logits: (n, C), floating.
        target: (n,) class indices, or None.
        columns: scores, each (n,).
        notes: columns that no number depends on, such as file names: n strings each, or a tensor.
    """

    row_numbers: Tensor
    logits: Tensor
    target: Tensor | None
    columns: Mapping[str, Tensor]
    notes: Mapping[str, Any]


class LogitReader:
    r"""The logits in a file or in many Parquet files: how many there are, blocks of rows, and random rows.

    Args:
        source: a file that ends in .npz, .npy, .safetensors, .pt, .pth, .parquet, .csv, .tsv or .csv.gz; or Parquet
            files: a folder, a pattern such as "out/part-*.parquet", or a URI such as "s3://bucket/folder" that Arrow
            can read.

            - arrays: "logits" of shape (N, C), perhaps "target" (or another name of
              `torch_boc.data.extract.TARGET_NAMES`), further arrays of shape (N,), which are scores, higher = more
              in-distribution, and arrays of text. `.npy` holds only logits; `.pt` may also hold a tensor or a pair
              (logits, target).
            - tables: columns logit_0 to logit_{C-1}, or (Parquet) a column "logits" of lists; further columns as above.
              `index` and columns without a name are left out.

            Parquet is read by row groups, and `.npy`, `.pt` and `.safetensors` are mapped into memory. Text and `.npz`
            are read as a whole.
        name: the name of the set in tables and messages; by default the name of the file without its ending.
        from_probabilities: whether the file holds probabilities instead of logits; see `read_logits`.
        classes: names of the classes in their order. Columns of a table may have these names, and targets may be names
            instead of indices. If the names are whole numbers, such as 1 to 3, all targets are names. Or the number of
            classes, for the columns of a predictor in a file that does not tell it.
        targets: whether the targets are used. Otherwise they are not checked, and are among the notes.

    Raises:
        FileNotFoundError, ImportError, ValueError, MemoryError: the message is one line that begins with the path.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("logit_0,logit_1,target\n2,0,0\n1,3,1\n0,4,1\n")
    >>> reader = LogitReader(path)
    >>> reader.rows, [(block.row_numbers.tolist(), block.target.tolist()) for block in reader.blocks(2)]
    (3, [([0, 1], [0, 1]), ([2], [1])])
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Arrays,
        name: str | None = None,
        *,
        from_probabilities: bool = False,
        classes: Sequence[str] | int | None = None,
        targets: bool = True,
    ) -> None:
        self._path = name or "" if isinstance(source, Arrays) else os.fspath(source)
        self.from_probabilities = from_probabilities
        self.name = printable(PurePosixPath(self._path.removesuffix(".gz")).stem if name is None else name)
        with file_errors(self._path):
            names = [] if classes is None or isinstance(classes, int) else list(classes)
            different = {name for name in names if isinstance(name, str)}
            if isinstance(classes, Sequence) and (isinstance(classes, str) or len(different) < max(2, len(names))):
                raise ContentError(f"expected a list of at least two different names of classes, got {classes!r}")
            self.classes = names or None
            self._content = source if isinstance(source, Arrays) else open_content(self._path)
            self.rows = self._content.rows
            self._choose_columns(targets)
            if self.rows == 0:
                raise ContentError("expected at least one row of logits, got none")
            expected = classes if isinstance(classes, int) else len(names) or self._content.num_classes
            self.num_classes = len(self._logits) or self._content.num_classes or expected or 0
            if self._logits and self._content.kinds[self._logits[0]] == NUMBERS:
                first: Any = next(self._content.batches(self._logits, 1))
                self.num_classes = first[self._logits[0]].shape[1]
            if not (self._logits or expected):
                raise ContentError(
                    f"expected the number of classes in the metadata of the file, got none; {NUMBER_REMEDY}"
                )
            if self.num_classes < 2 or self.num_classes != (expected or self.num_classes):
                raise ContentError(f"expected logits of {expected or 'at least 2'} classes, got {self.num_classes}")

    def _choose_columns(self, targets: bool) -> None:
        """Choose the columns of the classes, the target, the scores, the notes, and those that a predictor wrote."""
        kinds = self._content.kinds
        numbered = [name for name in kinds if re.fullmatch(r"(logit|prob)_\d+", name)]
        columns = [f"logit_{i}" for i in range(sum(name.startswith("logit") for name in numbered))]
        self._logits = ["logits"] if "logits" in kinds else columns or [*(self.classes or ())]
        if not {*self._logits} & {*kinds}:
            self._logits = []
        predicted = not self._logits and {*COINS} <= {*kinds}
        if not self._logits and not predicted:
            got = f"{', '.join([*kinds][:8])}{', ...' * (len(kinds) > 8)}"
            raise ContentError(f"expected {CONTRACT}, got {got}; if columns have the names of the classes, {NAMING}")
        wanted = NUMBERS if self._logits == ["logits"] else NUMBER
        for name in self._logits:
            if kinds.get(name) != wanted:
                raise ContentError(f"expected {wanted} in {name!r}, got {kinds.get(name, 'no such column')}")
        written = {*COLUMNS, TARGET_COLUMN, *LIST_COLUMNS, *FLAGS} if {*COINS} <= {*kinds} else {*self._logits}
        self._more = [x for x in kinds if predicted and x in written and kinds[x] == NUMBER]
        rest = [x for x in kinds if x not in {*self._logits, *written} and x.lower() not in NO_SCORES]
        named = [name for name in rest if name.lower() in TARGET_NAMES]
        if len(named) > 1:
            raise ContentError(f"expected one of {', '.join(TARGET_NAMES)}, got {' and '.join(named)}")
        if targets and named and kinds[named[0]] not in (NUMBER, TEXT):
            raise ContentError(f"expected one class a row in {named[0]!r}, got {kinds[named[0]]}")
        self._target = named[0] if named and targets else None
        self._scores = [x for x in rest if kinds[x] == NUMBER and x not in (*numbered, *named)]
        self.notes = [x for x in rest if kinds[x] == TEXT and x not in named]
        if left := [name for name in rest if name not in (*self._scores, *self.notes, *named)]:
            shown = f"{', '.join(left[:8])}{f' and {len(left) - 8} more' * (len(left) > 8)}"
            message = f"{printable(self._path)}: left out {printable(shown)}: neither one number nor one text a row"
            warnings.warn(message, stacklevel=3)
        self.notes += [x for x in named if not targets and kinds[x] in (NUMBER, TEXT)]

    def __iter__(self) -> Iterator[LogitBlock]:
        return self.blocks()

    def blocks(self, size: int | None = None, chosen: Tensor | None = None) -> Iterator[LogitBlock]:
        """The rows, at most `size` at a time; with `chosen`, only these rows, whose numbers are in order.

        An error in a row comes when its block is read. That every row is a probability vector is an error if it is so
        in the first block.
        """
        if not self._logits:
            raise ValueError(f"{printable(self._path)}: expected logits, got the columns of a predictor")
        for number, (index, batch) in enumerate(self._batches(size, chosen)):
            with error_prefix(printable(self._path)):
                start, parts = int(index[0]), [batch[name] for name in self._logits]
                logits = logit_set.floating(
                    parts[0] if parts[0].ndim == 2 else torch.hstack([x[:, None] for x in parts])
                )
                if logits.shape[1] != self.num_classes:
                    got = f"{logits.shape[1]} in row {start}"
                    raise ValueError(f"expected {self.num_classes} logits, as in the first row, got {got}")
                logits = logit_set.log_probabilities(logits, start) if self.from_probabilities else logits
                if number == 0:
                    logit_set.refuse_probabilities(logits)
                target = self._class_indices(batch, start)
                if target is not None:
                    target = logit_set.check_classes(target, len(logits), self.num_classes, ignored=True)
                columns = {printable(name): logit_set.floating(batch[name]) for name in self._scores}
                logit_set.check_columns(columns, len(logits))
                notes = {printable(name): batch[name] for name in self.notes}
            yield LogitBlock(index, logits, target, columns, notes)

    def whole(self, chosen: Tensor | None = None) -> LogitBlock:
        """All rows in one block."""
        return LogitBlock(*(_joined(parts) for parts in zip(*self.blocks(chosen=chosen), strict=True)))

    def read(self, max_rows: int | None = None, seed: int = 42) -> LogitSet | ColumnSet:
        """All rows; if there are more than `max_rows`, a uniform sample of that size.

        Rows with NaN or +inf, and rows whose target is `IGNORED_CLASS`, are left out, and a warning counts them. A
        table of the columns that a predictor writes is a ColumnSet.
        """
        chosen, total = None, None
        if max_rows is not None and self.rows > max_rows:
            chosen = torch.tensor(random.Random(seed).sample(range(self.rows), max_rows)).sort().values
            total = self.rows
        if not self._logits:
            return self._read_columns(chosen, total)
        data = self.whole(chosen)
        bad = ~data.logits.amax(1).isfinite() | (False if data.target is None else data.target == IGNORED_CLASS)
        if bool(bad.any()):
            warnings.warn(
                f"{printable(self._path)}: left out {int(bad.sum()):,} of {len(bad):,} rows: their logits are NaN, "
                f"+inf or only -inf, or their target is {IGNORED_CLASS}",
                stacklevel=2,
            )
            data = LogitBlock(*(some_rows(part, (~bad).nonzero().flatten()) for part in data))
        index, logits, target, columns, notes = data
        if len(logits) and 0 <= logits.min() < logits.max() <= 1:  # as after a sigmoid; logits hardly ever do so
            words = "every value lies in [0, 1], as probabilities do, but they do not sum to 1: they are used as logits"
            warnings.warn(f"{self.name}: {words}", stacklevel=2)
        kept = None if len(index) == self.rows else index
        return LogitSet(logits, target, columns, self.name, self.from_probabilities, total, kept, notes, self.classes)

    def _read_columns(self, chosen: Tensor | None, total: int | None) -> ColumnSet:
        parts = []
        for index, batch in self._batches(None, chosen):
            target = self._class_indices(batch, int(index[0]))
            parts.append({**batch, "index": index} | ({} if target is None else {"target": target}))
        joined = _joined(parts)
        notes = {name: joined[name] for name in self.notes}
        columns = {printable(name): joined[name] for name in self._scores}
        with error_prefix(printable(self._path)):
            kept = None if chosen is None else joined["index"]
            stats = restore_sample_stats(joined, num_classes=self.num_classes)
            return ColumnSet(stats, columns, self.name, total, kept, notes)

    def _batches(self, size: int | None, chosen: Tensor | None) -> Iterator[tuple[Tensor, Mapping[str, Any]]]:
        """The columns that are used, and the numbers of their rows."""
        if size is None:
            size = max(1, min(block_elements(torch.device("cpu")), MOST_ELEMENTS) // max(1, self.num_classes))
        names = [*self._logits, *self._scores, *self._more, *self.notes, *([self._target] if self._target else [])]
        start = 0
        with file_errors(self._path):
            for batch in self._content.batches(names, size):
                end = start + len(batch[names[0]])
                if chosen is None:
                    yield torch.arange(start, end), batch
                else:
                    first, last = torch.searchsorted(chosen, torch.tensor([start, end])).tolist()
                    if first < last:
                        yield chosen[first:last], some_rows(batch, chosen[first:last] - start)
                start = end

    def _class_indices(self, batch: Mapping[str, Any], start: int) -> Tensor | None:
        """Class indices, from numbers or from names of classes."""
        if self._target is None:
            return None
        values = batch[self._target]
        indices: dict[Any, int] = {name: i for i, name in enumerate(self.classes or ())}
        if isinstance(values, Tensor):
            values = logit_set.class_indices(values)
            numbers = {x: i for name, i in indices.items() for x in _numbers(name)}
            if not self._logits or all(i == x for x, i in numbers.items()):  # a predictor has written indices
                return values
            # Names that are numbers decide. If only some are, an index could be taken for a name.
            indices = {**numbers, IGNORED_CLASS: IGNORED_CLASS} if len(numbers) == len(indices) else {}
            values = values.tolist()
        if unknown := [f"{x!r} in row {row}" for row, x in enumerate(values, start) if x not in indices]:
            raise ContentError(
                f"expected class indices or known names of classes as targets, got {unknown[0]}; {NAMING}"
            )
        return torch.tensor([indices[x] for x in values])


def _numbers(name: str) -> list[Decimal]:
    """The whole number that a name is, such as 1 of "1", "01" and "1.0"; empty for other names."""
    with suppress(ArithmeticError):
        number = Decimal(name)
        return [number] if number.is_finite() and number == number.to_integral_value() else []
    return []


def _joined(parts: Sequence[Any]) -> Any:
    """The parts of a column, or of several by name, in one."""
    if isinstance(parts[0], Mapping):
        return {name: _joined([part[name] for part in parts]) for name in parts[0]}
    if isinstance(parts[0], Tensor):
        return torch.cat([*parts])
    return parts[0] and [x for part in parts for x in part]


def some_rows(column: Any, rows: Tensor) -> Any:
    """Some rows of a column, or of several by name."""
    if isinstance(column, Mapping):
        return {name: some_rows(x, rows) for name, x in column.items()}
    if isinstance(column, Tensor):
        return column[rows]
    return column and [column[i] for i in rows.tolist()]


def read_logits(
    source: Any, name: str | None = None, *, max_rows: int | None = None, seed: int = 42, **options: Any
) -> LogitSet | ColumnSet:
    """`source` as a set: a LogitSet, or a ColumnSet if it is a file of the columns that a predictor writes.

    Args:
        source: such a set; a path (see `LogitReader`); logits as a tensor or array; a pair (logits, target); or a
            mapping with "logits", perhaps one of labels, label, targets, target, y, y_true or ground_truth, and any
            further columns of one number per sample.
        name: the name of the set in tables and messages; by default that of the file. Control characters in it and in
            the names of columns are written as escapes.
        max_rows: from more rows, a uniform sample of this size is drawn.
        seed: of these rows.
        options: those of `LogitReader`: `from_probabilities`, `classes` and `targets`. Probabilities are not
            negative, and every row sums to 1, up to the digits that they are rounded to. Their logarithms are then the
            logits, with 1e-30 instead of 0. A LogitSet already holds logits.
    """
    if isinstance(source, LogitSet | ColumnSet):
        called = source.name if name is None else printable(name)
        columns = {printable(column): values for column, values in source.columns.items()}
        return replace(source, name=called, columns=columns)
    if not isinstance(source, str | os.PathLike):
        name = "logits" if name is None else name
        with error_prefix(printable(name)):
            source = Arrays({key: logit_set.as_numbers(x, key) for key, x in _by_name(source).items()})
    return LogitReader(source, name, **options).read(max_rows, seed)


def _by_name(source: Any) -> dict[str, Any]:
    """What a single array, a pair or a mapping holds, by name."""
    if isinstance(source, tuple) and len(source) == 2:
        source = dict(zip(("logits", "target"), source, strict=True))
    given = source if isinstance(source, Mapping) else {"logits": source}
    return {str(name): x for name, x in given.items() if x is not None}


def open_content(source: str) -> ParquetTable | Arrays:
    """The content of a file, or of many Parquet files."""
    path = Path(source).expanduser()
    if "://" in source or path.is_dir() or (has_magic(source) and not path.exists()):
        return ParquetTable(_find(source))
    if not path.exists():
        raise FileNotFoundError(f"{printable(source)}: no such file")
    if not path.is_file():
        raise ContentError("expected a file, got a device or a pipe; write the logits to a file first")
    with path.open("rb") as file:
        start = file.read(2)
    if not start:
        raise ContentError("expected logits, got an empty file")
    if start in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):  # and so is the old format of torch.save
        raise ContentError(REFUSAL)
    suffix = "".join(path.suffixes[-2:]).lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    if suffix not in READERS:
        raise ContentError(f"expected a file that ends in {', '.join(READERS)}, got {suffix or 'no ending'!r}")
    return READERS[suffix](path)


def _find(source: str) -> Mapping[str, Callable[[], Any]]:
    """The Parquet files of a folder, a pattern or a URI, in the order of their names.

    Files and folders whose names begin with a dot or an underscore are left out, as unfinished files have such names.
    """
    path = Path(source).expanduser().absolute()
    opened: Callable[[str], Any] = partial(open, mode="rb")  # Arrow would refuse a path that is not UTF-8
    if "://" in source:
        fs = require_pyarrow().fs
        try:
            system, base = fs.FileSystem.from_uri(source)
        except ValueError as error:
            raise ContentError(f"expected a URI that Arrow can read, such as s3://bucket/folder: {error}") from None
        start, inside = len(base.rstrip("/")), fs.FileSelector(base, recursive=True, allow_not_found=True)
        files = system.get_file_info([base] if system.get_file_info(base).is_file else inside)
        paths = [x.path for x in files if x.is_file and not re.search(r"/[._]", x.path[start:])]
        opened = system.open_input_file
    elif path.is_dir():
        names = glob("**/*.parquet", root_dir=path, recursive=True)  # noqa: PTH207
        paths = [str(path / x) for x in names if not re.search(r"(^|[/\\])_", x) and (path / x).is_file()]
    else:
        paths = glob(str(path))  # noqa: PTH207
    paths = sorted(name for name in paths if name.endswith(".parquet"))
    if not paths:
        raise FileNotFoundError(f"{printable(source)}: expected Parquet files, got none")
    return {name: partial(opened, name) for name in paths}


def _read_numpy(path: Path) -> Arrays:
    """The arrays of an `.npz` file, or the one of an `.npy` file, which is mapped into memory."""
    load, zipped = numpy().load, path.suffix.lower() == ".npz"
    try:
        with path.open("rb") as file:
            arrays = {**load(file)} if zipped else {"logits": load(path, mmap_mode="c")}
    except ValueError as error:
        if "bject" in str(error):  # NumPy's word for what is a pickle, or nothing that it knows
            raise ContentError(
                f"expected arrays of numbers that NumPy has saved, got another file; {REFUSAL}"
            ) from None
        raise
    arrays = {name: as_tensor(x) for name, x in arrays.items()}
    texts = {name: x.tolist() for name, x in arrays.items() if not isinstance(x, Tensor) and x.dtype.kind == "U"}
    return Arrays(arrays | texts)


def _read_torch(path: Path) -> Arrays:
    """A tensor, a pair or a mapping of tensors saved with `torch.save`."""
    if not zipfile.is_zipfile(path):
        raise ValueError("it was not written by torch.save, or its end is missing")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise ContentError(
            "expected only tensors, got other objects; reading these can run any code, so they are refused; "
            "save tensors: torch.save({'logits': ..., 'target': ...}, path)"
        ) from error
    return Arrays({name: x.detach() if isinstance(x, Tensor) else x for name, x in _by_name(content).items()})


READERS: Mapping[str, Callable[[Path], ParquetTable | Arrays]] = {
    **dict.fromkeys((".npz", ".npy"), _read_numpy),
    ".safetensors": lambda path: Arrays(
        require("safetensors", "torch", purpose="reading it needs").torch.load_file(path)
    ),
    **dict.fromkeys((".pt", ".pth"), _read_torch),
    ".parquet": lambda path: ParquetTable({str(path): partial(path.open, "rb")}),
    **dict.fromkeys((".csv", ".tsv", ".csv.gz"), read_text),
}
