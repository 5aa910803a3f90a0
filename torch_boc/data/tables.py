"""What a file holds, before it is logits: columns by name, their kinds, and batches of rows.

Parquet files are read some rows at a time through Arrow, text files as a whole; arrays are sliced.
"""

import csv
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._optional import require, require_pyarrow
from .errors import ContentError, file_errors
from .parquet import stored_classes

# The kinds of columns that are used; any other kind is a word of Arrow or torch, for messages.
NUMBER, NUMBERS, TEXT = "one number a row", "several numbers a row", "text"
# The bytes of Parquet that are read ahead, in all columns together and at least in each.
AHEAD_BYTES, COLUMN_AHEAD_BYTES = 2**23, 2**14
# The bytes of text that Arrow reads at once, in all and for each column. A whole row must fit into a block.
CSV_BLOCK_BYTES, CSV_COLUMN_BYTES = 2**20, 256
Batch = dict[str, Tensor | list[str]]


class Arrays:
    """Columns in memory, or mapped into it: tensors, and lists of strings.

    Attributes:
        kinds: the kind of each column by its name: `NUMBER`, `NUMBERS`, `TEXT`, or a word for a message.
        rows: the number of rows.
        num_classes: the number of classes, as the metadata of a Parquet file has it; otherwise None.
    """

    num_classes: int | None = None

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content, self.kinds = content, {name: _array_kind(x) for name, x in content.items()}
        sized = [len(content[name]) for kind in (NUMBERS, NUMBER) for name in content if self.kinds[name] == kind]
        self.rows = sized[0] if sized else 0

    def batches(self, names: Sequence[str], size: int) -> Iterator[Batch]:
        """The rows of some columns, at most `size` at a time."""
        for name in names:
            if len(self._content[name]) != self.rows:
                raise ContentError(f"expected {name!r} with {self.rows} rows, got {len(self._content[name])}")
        for start in range(0, self.rows, size):
            yield {name: self._content[name][start : start + size] for name in names}


def _array_kind(x: Any) -> str:
    if isinstance(x, Tensor) and x.ndim in (1, 2) and x.layout == torch.strided:
        if not (x.is_complex() or x.dtype == torch.bool or x.is_quantized or x.is_meta):
            return NUMBER if x.ndim == 1 else NUMBERS
    elif isinstance(x, list) and all(isinstance(text, str) for text in x):
        return TEXT
    kind = getattr(x, "dtype", None) or getattr(x, "type", type(x).__name__)  # of NumPy and torch, or of Arrow
    return f"{kind} of shape {tuple(getattr(x, 'shape', ()))}"


class ParquetTable:
    """The rows of Parquet files, of which a few are in memory at a time, with the attributes and method of `Arrays`.

    `files` has a function that opens each.
    """

    def __init__(self, files: Mapping[str, Callable[[], Any]]) -> None:
        self._files, self.rows, self.kinds = files, 0, dict[str, str]()
        self.num_classes: int | None = None
        for path, opened in files.items():
            with file_errors(path), opened() as stream, require_pyarrow().parquet.ParquetFile(stream) as file:
                self.rows += file.metadata.num_rows
                kinds, classes = column_kinds(file.schema_arrow), stored_classes(file.metadata.metadata)
                self.kinds, self.num_classes = self.kinds or kinds, self.num_classes or classes
                if classes != self.num_classes:
                    raise ContentError(f"expected rows of {self.num_classes} classes, as in other files, got {classes}")
                if differing := [x for x in {**self.kinds, **kinds} if kinds.get(x) != self.kinds.get(x)]:
                    expected, got = (x.get(differing[0], "none") for x in (self.kinds, kinds))
                    raise ContentError(
                        f"expected the columns of {next(iter(files))}, where {differing[0]!r} has {expected}, got {got}"
                    )

    def batches(self, names: Sequence[str], size: int) -> Iterator[Batch]:
        """See `Arrays`."""
        # Without pre_buffer=False, Arrow would read all of a row group at once, which may be all of the file.
        ahead = max(COLUMN_AHEAD_BYTES, AHEAD_BYTES // len(names))
        options = {"buffer_size": ahead, "pre_buffer": False, "page_checksum_verification": True}
        for path, opened in self._files.items():
            with (
                file_errors(path),
                opened() as stream,
                require_pyarrow().parquet.ParquetFile(stream, **options) as file,
            ):
                for table in file.iter_batches(batch_size=size, columns=names):
                    if table.num_rows:
                        yield {name: _values(name, table.column(name), self.kinds[name]) for name in names}


def read_text(path: Path) -> Arrays:
    """The rows of a text file.

    Commas, semicolons, tabs or bars are between the columns, and the first line has their names.
    """
    arrow, opened = require_pyarrow(), gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        line = file.readline()
    mark = next((mark for mark in ",\t;|" if mark in line), ",")
    names = next(csv.reader([line], delimiter=mark), [])
    with opened(path, "rb") as file:
        size = max(CSV_BLOCK_BYTES, CSV_COLUMN_BYTES * len(names))
        table = arrow.csv.read_csv(
            file,
            arrow.csv.ReadOptions(block_size=size),
            arrow.csv.ParseOptions(delimiter=mark, newlines_in_values=True),
            arrow.csv.ConvertOptions(strings_can_be_null=True),
        )
    table = table.rename_columns([name.strip() for name in names])
    kinds = column_kinds(table.schema)
    return Arrays({name: _values(name, table[name], kind) for name, kind in kinds.items()})


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


def column_kinds(schema: Any) -> dict[str, str]:
    """The kind of each column of Arrow by its name."""
    kinds = {field.name: _column_kind(field.type) for field in schema}
    if len(kinds) < len(schema):
        twice = next(name for name in schema.names if schema.names.count(name) > 1)
        raise ContentError(f"expected columns with different names, got {twice!r} twice; rename one")
    return kinds


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


def _values(name: str, column: Any, kind: str) -> Any:
    """A column of Arrow as a tensor, in which a missing value is NaN, or as a list of strings; others unchanged."""
    if kind == TEXT:
        return ["" if x is None else str(x) for x in column.to_pylist()]
    if kind == NUMBERS:
        compute = require_pyarrow().compute
        lengths = compute.unique(compute.list_value_length(column)).to_pylist()
        if len(lengths) != 1 or None in lengths:
            shown = ", ".join("none" if n is None else str(n) for n in lengths[:5])
            raise ContentError(f"expected lists of one length in column {name!r}, got lists of length {shown}")
        return _values(name, compute.list_flatten(column), NUMBER).reshape(len(column), lengths[0])
    if kind != NUMBER:
        return column
    types = require_pyarrow().types
    if column.null_count or types.is_decimal(column.type) or types.is_null(column.type):
        column = column.cast("float64", safe=False)  # whole numbers may have more digits
    return as_tensor(numpy().array(column.to_numpy(zero_copy_only=False)))
