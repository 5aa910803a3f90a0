"""Tables of logits through Arrow: Parquet files some rows at a time, CSV files as a whole; columns as tensors."""

import csv
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._optional import require, require_pyarrow
from ..core.contract import COINS
from ..functional.columns import COLUMNS
from .atomic import is_memory_error, printable
from .sets import find_target_name

CONTRACT = (
    "'logits' (in tables: columns logit_0, logit_1, ..., or 'logits' of lists), perhaps 'target', and further columns "
    "of one number a row, which are scores"
)
NAMING = "name the classes in their order with classes=[...] (--classes on the command line)"
# Columns that libraries add when they save a table, and predicted classes: neither are scores.
IGNORED = ("", "index", "unnamed: 0", "__index_level_0__", "prediction")
NUMBERED = re.compile(r"(logit|prob)_(\d+)")
# The bytes of Parquet that are read ahead, in all columns together and at least in each.
AHEAD_BYTES, COLUMN_AHEAD_BYTES = 2**23, 2**14
# The bytes of CSV that Arrow reads at once, in all and for each column. A whole row must fit into a block.
CSV_BLOCK_BYTES, CSV_COLUMN_BYTES = 2**20, 256


class ContentError(ValueError):
    """The file is not damaged, but its content is not what is needed."""


class FileError(ValueError):
    """What is wrong with a file, said with its path."""


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turns what goes wrong with a file into errors of one line that begin with its path."""
    said = printable(path)
    try:
        yield
    except Exception as error:  # libraries raise all kinds of errors on damaged files
        text = printable(" ".join(str(error).split()))
        system = isinstance(error, OSError) and error.errno is not None and not is_memory_error(error)
        if isinstance(error, FileError | Warning) or text.startswith(said) or system:
            raise
        if isinstance(error, ImportError):
            raise ImportError(f"{said}: {error}") from error
        if is_memory_error(error):
            raise MemoryError(f"{said}: {too_little(path)}") from error
        if isinstance(error, ContentError):
            raise FileError(f"{said}: {text}") from None
        kind = Path(path).suffix.lower() or "Parquet"
        reason = text or type(error).__name__
        raise FileError(
            f"{said}: expected a whole {kind} file, got one that seems damaged or cut off: {reason}"
        ) from error


def too_little(path: str) -> str:
    """The message for a file that does not fit in memory."""
    size = f" ({Path(path).stat().st_size / 1e6:,.1f} MB on disk)" if Path(path).is_file() else ""
    return (
        f"too little memory to read it{size}; the file may be whole. Use a machine with more memory, fewer rows, or "
        "float32 or float16 instead of float64"
    )


class Layout(NamedTuple):
    """Which columns or arrays of a file are used.

    Attributes:
        logits: those of the classes in their order, or the one of all classes; none if a predictor wrote the table.
        target: the targets, or None.
        scores: one number a row.
        left_out: the rest.
    """

    logits: tuple[Any, ...]
    target: Any = None
    scores: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class Part(NamedTuple):
    """Some rows. The logits are None in a table of a predictor's columns, which are among the scores then."""

    logits: Tensor | None
    target: Any
    scores: dict[str, Any]


def layout_of(
    names: Sequence[str], numbers: Collection[str], classes: Sequence[str] | None = None, *, shares: bool = False
) -> Layout:
    """The layout of a file, by the names of its columns alone.

    Args:
        names: all names.
        numbers: those with one number a row.
        classes: names of the classes. Columns may have these names, with or without "logit_" in front.
        shares: whether the file holds probabilities: then prob_0, prob_1, ... or 'probabilities' come first.
    """
    twice = [name for name, times in Counter(name.strip() for name in names).items() if times > 1]
    if twice:
        raise ContentError(f"expected columns with different names, got {twice[0]!r} twice; rename one")
    logits = _logit_names(names, classes, "prob" if shares else "logit") or _logit_names(names, None, "logit")
    predicted = not logits and {*COINS} <= {*names}
    if not logits and not predicted:
        got = f"{', '.join(names[:8])}{', ...' * (len(names) > 8)}"
        raise ContentError(f"expected {CONTRACT}, got {got}; if columns have the names of the classes, {NAMING}")
    try:
        target = find_target_name([name for name in names if name not in logits])
    except ValueError as error:
        raise ContentError(str(error)) from None
    known = {*logits, target, *(COLUMNS if predicted else ())}
    rest = [name for name in names if name not in known and _folded(name) not in IGNORED]
    scores = [name for name in rest if name in numbers and not NUMBERED.fullmatch(_folded(name))]
    left = [name for name in rest if name not in scores and not predicted]  # a predictor also writes names of files
    return Layout(tuple(logits), target, tuple(scores), tuple(left))


def _logit_names(names: Sequence[str], classes: Sequence[str] | None, word: str) -> list[str]:
    """The columns of the classes in their order, or the one column of all classes."""
    known = {name.strip(): name for name in names}
    if classes is not None:
        found = [known.get(x.strip()) or known.get(f"logit_{x.strip()}") for x in classes]
        missing = [x for x, name in zip(classes, found, strict=True) if name is None]
        if 0 < len(missing) < len(classes):
            raise ContentError(f"expected a column for every class, got none for {missing[0]!r}")
        if not missing:
            return [name for name in found if name is not None]
    matches = [(name, match) for name in names if (match := NUMBERED.fullmatch(_folded(name))) and match[1] == word]
    places = {int(match[2]): name for name, match in matches}
    whole = [name for name in names if _folded(name) == {"logit": "logits", "prob": "probabilities"}[word]]
    if places and whole:
        raise ContentError(f"expected {word}_0, {word}_1, ... or {whole[0]!r}, got both; leave one out")
    missing = [f"{word}_{i}" for i in range(len(places)) if i not in places]
    if missing or len(places) < len(matches):
        wrong = f"no {missing[0]}" if missing else "one of them twice"
        raise ContentError(f"expected columns {word}_0 to {word}_{len(matches) - 1}, got {wrong}")
    return [places[i] for i in range(len(places))] or whole


def _folded(name: str) -> str:
    return name.strip().lower()


class Sheet:
    """Rows of a table. `tables` gives the rows, and this class makes tensors of them.

    Attributes:
        layout: which columns are used.
        rows: the number of rows.
        num_classes: the number of classes; 0 in a table of a predictor's columns.
    """

    def __init__(self, schema: Any, rows: int, classes: Sequence[str] | None, shares: bool) -> None:
        numbers = [field.name for field in schema if is_number(field.type)]
        self.layout = layout_of(schema.names, numbers, classes, shares=shares)
        self.rows = rows
        more = [name for name in COLUMNS if name in schema.names] if not self.layout.logits else []
        self._scores = [*self.layout.scores, *more]
        self.wanted = [*self.layout.logits, *self._scores]
        self.wanted += [] if self.layout.target is None else [self.layout.target]
        self._lists = len(self.layout.logits) == 1
        if rows == 0:
            raise ContentError("expected at least one row of logits, got none")
        self.num_classes = len(self.layout.logits)
        if self._lists:
            self.num_classes = next(self.parts(1)).logits.shape[1]  # type: ignore[union-attr]

    def tables(self, size: int, chosen: Tensor | None) -> Iterator[Any]:
        """The rows as Arrow tables of at most `size` rows; with `chosen`, only these rows, which are in order."""
        raise NotImplementedError

    def parts(self, size: int, chosen: Tensor | None = None) -> Iterator[Part]:
        """The rows as tensors."""
        for table in self.tables(size, chosen):
            columns = dict(zip(table.column_names, table.columns, strict=True))
            logits = None
            if self._lists:
                logits = list_column(columns[self.layout.logits[0]], self.layout.logits[0])
            elif self.layout.logits:
                logits = torch.stack([*_promoted([number_column(columns[x], x) for x in self.layout.logits])], 1)
            target = None if self.layout.target is None else _numbers_or_names(columns[self.layout.target])
            yield Part(logits, target, {name.strip(): number_column(columns[name], name) for name in self._scores})


class ParquetSheet(Sheet):
    """The rows of Parquet files, of which a few are in memory at a time.

    Args:
        files: a function for each path that opens the file.
        classes: names of the classes, or None.
        shares: whether the files hold probabilities.
    """

    def __init__(self, files: Mapping[str, Callable[[], Any]], classes: Sequence[str] | None, shares: bool) -> None:
        self._files, rows, schemas = files, 0, []
        for path, opened in files.items():
            with reading(path), opened() as stream, require_pyarrow().parquet.ParquetFile(stream) as file:
                rows += file.metadata.num_rows
                schemas.append(file.schema_arrow)
        super().__init__(schemas[0], rows, classes, shares)
        for path, schema in zip(files, schemas, strict=True):
            missing = [name for name in self.wanted if name not in schema.names]
            if missing:
                raise FileError(f"{path}: expected the columns of {next(iter(files))}, got none for {missing[0]!r}")

    def tables(self, size: int, chosen: Tensor | None) -> Iterator[Any]:
        """See `Sheet`. Row groups without chosen rows are not read."""
        arrow, start = require_pyarrow(), 0
        ahead = max(COLUMN_AHEAD_BYTES, AHEAD_BYTES // len(self.wanted))
        for path, opened in self._files.items():
            # Without pre_buffer=False, Arrow would read all of a row group at once, which may be all of the file.
            how = {"buffer_size": ahead, "pre_buffer": False, "page_checksum_verification": True}
            with reading(path), opened() as stream, arrow.parquet.ParquetFile(stream, **how) as file:
                for group in range(file.num_row_groups):
                    end = start + file.metadata.row_group(group).num_rows
                    if chosen is None or len(_within(chosen, start, end)):
                        batches = file.iter_batches(batch_size=size, row_groups=[group], columns=self.wanted)
                        yield from _taken(batches, start, chosen)
                    start = end


class CsvSheet(Sheet):
    """The rows of a CSV file, which are all in memory. Its first line has the names of the columns."""

    def __init__(self, path: Path, classes: Sequence[str] | None, shares: bool) -> None:
        arrow, names = require_pyarrow(), _csv_header(path)
        logits = layout_of(names, names, classes, shares=shares).logits
        if len(logits) == 1:
            raise ContentError(f"expected {CONTRACT}, got a column {logits[0]!r}: a CSV cell holds one number")
        types = dict.fromkeys(logits, arrow.float64())
        with path.open("rb") as file:
            self._table = arrow.csv.read_csv(
                file,
                arrow.csv.ReadOptions(block_size=max(CSV_BLOCK_BYTES, CSV_COLUMN_BYTES * len(names))),
                arrow.csv.ParseOptions(newlines_in_values=True),
                arrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True),
            )
        super().__init__(self._table.schema, self._table.num_rows, classes, shares)

    def tables(self, size: int, chosen: Tensor | None) -> Iterator[Any]:
        """See `Sheet`."""
        starts = range(0, self.rows, size)
        yield from _taken((self._table.select(self.wanted).slice(start, size) for start in starts), 0, chosen)


def _csv_header(path: Path) -> list[str]:
    """The names of the columns; an error if they are not separated by commas."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            names: list[str] = next(csv.reader(file), [])
        except UnicodeDecodeError:
            raise ContentError("expected text in UTF-8, got something else; save it as CSV in UTF-8") from None
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise ContentError(f"expected commas between the columns, got {names[0][:40]!r}; save it with commas")
    return names


def _within(chosen: Tensor, start: int, end: int) -> Tensor:
    """Those of the chosen rows, which are in order, from `start` to `end`, counted from `start`."""
    first, last = torch.searchsorted(chosen, torch.tensor([start, end])).tolist()
    return chosen[first:last] - start


def _taken(batches: Any, start: int, chosen: Tensor | None) -> Iterator[Any]:
    """The chosen rows of Arrow batches or tables, the first of which is row `start`."""
    for batch in batches:
        end = start + batch.num_rows
        rows = None if chosen is None else _within(chosen, start, end)
        if batch.num_rows and (rows is None or len(rows)):
            yield batch if rows is None else batch.take(rows.numpy())
        start = end


def numpy() -> Any:
    """NumPy, or an error that says how to get it."""
    return require("numpy", purpose="reading it needs")


def as_tensor(array: Any) -> Any:
    """A NumPy array of numbers as a tensor, in the byte order of this machine; any other array unchanged."""
    if getattr(array, "dtype", None) is None or array.dtype.kind not in "fiub":
        return array
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype("float64")
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is one of numbers."""
    types = require_pyarrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is one of lists."""
    types = require_pyarrow().types
    return any(is_kind(kind) for is_kind in (types.is_list, types.is_large_list, types.is_fixed_size_list))


def number_column(column: Any, name: str) -> Tensor:
    """A column of one number per row; a missing value is NaN."""
    if not is_number(column.type):
        raise ContentError(f"expected numbers in column {name!r}, got {column.type}")
    if column.null_count or require_pyarrow().types.is_decimal(column.type):
        column = column.cast("float64")
    tensor: Tensor = as_tensor(numpy().array(column.to_numpy(zero_copy_only=False)))
    return tensor


def list_column(column: Any, name: str) -> Tensor:
    """(N, C) from a column with a list of C numbers in each row."""
    if not is_list(column.type):
        raise ContentError(f"expected a list of numbers in each row of column {name!r}, got {column.type}")
    compute = require_pyarrow().compute
    lengths = compute.unique(compute.list_value_length(column)).to_pylist()
    if len(lengths) != 1 or None in lengths:
        shown = ", ".join("none" if n is None else str(n) for n in lengths[:5])
        raise ContentError(f"expected as many logits in every row, got lists of length {shown}")
    return number_column(compute.list_flatten(column), name).reshape(len(column), lengths[0])


def _promoted(columns: Sequence[Tensor]) -> Iterator[Tensor]:
    """The columns in the dtype that holds all of them."""
    kind = columns[0].dtype
    for column in columns:
        kind = torch.promote_types(kind, column.dtype)
    return (column.to(kind) for column in columns)


def _numbers_or_names(column: Any) -> Any:
    """Targets: a tensor of numbers, or a list of what else there is."""
    return number_column(column, "target") if is_number(column.type) else column.to_pylist()
