"""What a file holds, before it is logits: columns by name, their kinds, and batches of rows.

Parquet files are read some rows at a time through Arrow, text files as a whole; arrays are sliced.
"""

import csv
import gzip
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._optional import require, require_pyarrow
from .atomic import is_memory_error, printable

# The kinds of columns that are used; any other kind is a word of Arrow or torch, for messages.
NUMBER, NUMBERS, TEXT = "one number a row", "several numbers a row", "text"
# The bytes of Parquet that are read ahead, in all columns together and at least in each.
AHEAD_BYTES, COLUMN_AHEAD_BYTES = 2**23, 2**14
# The bytes of text that Arrow reads at once, in all and for each column. A whole row must fit into a block.
CSV_BLOCK_BYTES, CSV_COLUMN_BYTES = 2**20, 256
Batch = dict[str, Tensor | list[str]]


class ContentError(ValueError):
    """The file is not damaged, but its content is not what is needed."""


class FileError(ValueError):
    """What is wrong with a file, said with its path."""


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turns what goes wrong with a file into errors of one line that begin with its path."""
    said, file = printable(path), Path(path)
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
            size = f" ({file.stat().st_size / 1e6:,.1f} MB on disk)" if file.is_file() else ""
            raise MemoryError(
                f"{said}: too little memory to read it{size}; the file may be whole. Use a machine with more memory, "
                "fewer rows, or float32 or float16 instead of float64"
            ) from error
        if isinstance(error, ContentError):
            raise FileError(f"{said}: {text}") from None
        kind, reason = file.suffix.lower() or "Parquet", text or type(error).__name__
        raise FileError(f"{said}: expected a whole {kind} file, got one that seems damaged: {reason}") from error


class Arrays:
    """Arrays of a file by name, with the attributes and the method of `Sheet`."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = content
        self.kinds = {name: _array_kind(x) for name, x in content.items()}
        self.rows = next(
            (len(content[name]) for kind in (NUMBERS, NUMBER) for name in content if self.kinds[name] == kind), 0
        )

    def batches(self, names: Sequence[str], size: int) -> Iterator[Batch]:
        """See `Sheet`."""
        for name in names:
            if len(self._content[name]) != self.rows:
                raise ContentError(f"expected {name!r} with {self.rows} rows, got {len(self._content[name])}")
        for start in range(0, self.rows, size):
            parts = {name: self._content[name][start : start + size] for name in names}
            yield {name: x if isinstance(x, Tensor) else list(map(str, x)) for name, x in parts.items()}


def _array_kind(x: Any) -> str:
    if isinstance(x, Tensor) and x.ndim in (1, 2) and x.layout == torch.strided:
        if not x.is_complex() and x.dtype != torch.bool:
            return NUMBER if x.ndim == 1 else NUMBERS
    elif getattr(getattr(x, "dtype", None), "kind", "") == "U" and x.ndim == 1:
        return TEXT
    return f"{getattr(x, 'dtype', type(x).__name__)} of shape {tuple(getattr(x, 'shape', ()))}"


class Sheet:
    """Rows of a table, from Arrow.

    Attributes:
        kinds: the kind of each column by its name: `NUMBER`, `NUMBERS`, `TEXT`, or a word for a message.
        rows: the number of rows.
    """

    def __init__(self, schema: Any, rows: int) -> None:
        self.rows, self.kinds = rows, {field.name: _column_kind(field.type) for field in schema}
        if len(self.kinds) < len(schema):
            twice = next(name for name, times in Counter(schema.names).items() if times > 1)
            raise ContentError(f"expected columns with different names, got {twice!r} twice; rename one")

    def tables(self, names: Sequence[str], size: int) -> Iterator[Any]:
        """The rows as Arrow tables or batches."""
        raise NotImplementedError

    def batches(self, names: Sequence[str], size: int) -> Iterator[Batch]:
        """The rows of some columns, at most `size` at a time."""
        for table in self.tables(names, size):
            columns = dict(zip(table.column_names, table.columns, strict=True))
            if table.num_rows:
                yield {name: self._converted(name, columns[name]) for name in names}

    def _converted(self, name: str, column: Any) -> Tensor | list[str]:
        if self.kinds[name] == TEXT:
            return ["" if x is None else str(x) for x in column.to_pylist()]
        if self.kinds[name] == NUMBER:
            return _numbers(column)
        compute = require_pyarrow().compute
        lengths = compute.unique(compute.list_value_length(column)).to_pylist()
        if len(lengths) != 1 or None in lengths:
            shown = ", ".join("none" if n is None else str(n) for n in lengths[:5])
            raise ContentError(f"expected lists of one length in column {name!r}, got lists of length {shown}")
        return _numbers(compute.list_flatten(column)).reshape(len(column), lengths[0])


class ParquetSheet(Sheet):
    """The rows of Parquet files, of which a few are in memory at a time. `files` has a function that opens each."""

    def __init__(self, files: Mapping[str, Callable[[], Any]]) -> None:
        self._files, rows, schemas = files, 0, []
        for path, opened in files.items():
            with reading(path), opened() as stream, require_pyarrow().parquet.ParquetFile(stream) as file:
                rows += file.metadata.num_rows
                schemas.append(file.schema_arrow)
        super().__init__(schemas[0], rows)
        for path, schema in zip(files, schemas, strict=True):
            if missing := {*self.kinds} - {*schema.names}:
                raise FileError(f"{path}: expected the columns of {next(iter(files))}, got none for {min(missing)!r}")

    def tables(self, names: Sequence[str], size: int) -> Iterator[Any]:
        """See `Sheet`."""
        # Without pre_buffer=False, Arrow would read all of a row group at once, which may be all of the file.
        ahead = max(COLUMN_AHEAD_BYTES, AHEAD_BYTES // len(names))
        how = {"buffer_size": ahead, "pre_buffer": False, "page_checksum_verification": True}
        for path, opened in self._files.items():
            with reading(path), opened() as stream, require_pyarrow().parquet.ParquetFile(stream, **how) as file:
                yield from file.iter_batches(batch_size=size, columns=names)


class TextSheet(Sheet):
    """The rows of a text file, which are all in memory.

    Commas, semicolons, tabs or bars are between the columns, and the first line has their names. If the first line has
    numbers only, every column is that of a class.
    """

    def __init__(self, path: Path) -> None:
        arrow, opened = require_pyarrow(), gzip.open if path.suffix.lower() == ".gz" else open
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            try:
                line = file.readline()
            except UnicodeDecodeError:
                raise ContentError("expected text in UTF-8, got something else; save it as CSV in UTF-8") from None
        mark = next((mark for mark in ",\t;|" if mark in line), ",")
        names = next(csv.reader([line], delimiter=mark), [])
        bare = all(map(_is_number, names))
        names = [f"logit_{i}" for i in range(len(names))] if bare else names
        with opened(path, "rb") as file:
            size = max(CSV_BLOCK_BYTES, CSV_COLUMN_BYTES * len(names))
            self._table = arrow.csv.read_csv(
                file,
                arrow.csv.ReadOptions(block_size=size, column_names=names if bare else None),
                arrow.csv.ParseOptions(delimiter=mark, newlines_in_values=True),
                arrow.csv.ConvertOptions(strings_can_be_null=True),
            )
        names = [name.strip() for name in names]
        self._table = self._table.rename_columns(names)
        super().__init__(self._table.schema, self._table.num_rows)
        *rest, last = [(x := _numbers(self._table[name])).equal(x.round()) for name in names] if bare else [False]
        if last and not all(rest):
            raise ContentError("expected a first line with the names of the columns, as the last looks like a target")

    def tables(self, names: Sequence[str], size: int) -> Iterator[Any]:
        """See `Sheet`."""
        return (self._table.slice(start, size) for start in range(0, self.rows, size))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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


def _column_kind(kind: Any) -> str:
    types = require_pyarrow().types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
        return NUMBER
    if types.is_dictionary(kind):
        return TEXT if _column_kind(kind.value_type) == TEXT else str(kind)
    if types.is_string(kind) or types.is_large_string(kind):
        return TEXT
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return NUMBERS if lists and _column_kind(kind.value_type) == NUMBER else str(kind)


def _numbers(column: Any) -> Tensor:
    """A column of one number per row; a missing value is NaN."""
    if column.null_count or require_pyarrow().types.is_decimal(column.type):
        column = column.cast("float64")
    tensor: Tensor = as_tensor(numpy().array(column.to_numpy(zero_copy_only=False)))
    return tensor
