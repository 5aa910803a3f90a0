"""Files of columns, as tensors by name: Parquet and CSV, through Arrow."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._optional import require_pyarrow
from .csv_rows import find_bad_line, read_header
from .families import find_families
from .finding import TARGET_NAMES
from .formats import ContentError, Text, as_tensor, numpy
from .selection import folded

# The bytes of CSV that Arrow reads at once, in all and for each column. A whole row must fit into a block.
CSV_BLOCK_BYTES, COLUMN_BYTES = 2**20, 64


def read_parquet(path: Path, classes: Sequence[str] | None = None) -> dict[str, Any]:
    """The columns of a `.parquet` file by name, with the columns of logits joined to one array.

    A column that holds no numbers is a list of names of classes, or a `Text` that says what it holds.
    """
    arrow = require_pyarrow()
    with path.open("rb") as stream, arrow.parquet.ParquetFile(stream) as file:
        kinds = {field.name: field.type for field in file.schema_arrow}
        families = find_families(file.schema_arrow.names, classes)
        wanted = [name for names in families.values() for name in names]
        joined = set(wanted)
        wanted += [x for x in kinds if x not in joined and (folded(x) in TARGET_NAMES or _is_number(kinds[x]))]
        table = file.read(columns=wanted)
    columns = dict(zip(table.column_names, table.columns, strict=True))
    result: dict[str, Any] = {family: _family(columns, names) for family, names in families.items()}
    for name in (name for name in kinds if name not in joined):
        result[name] = _other(columns[name], name) if name in columns else Text(_word(kinds[name]))
    return result


def read_csv(path: Path, classes: Sequence[str] | None = None) -> dict[str, Any]:
    """The same for a `.csv` file. Its first line has the names of the columns, and all numbers are float64."""
    names = read_header(path)
    families = find_families(names, classes)
    if families.get("logits") == ["logits"]:
        raise ContentError("expected columns logit_0, logit_1, ..., got a column 'logits': a CSV cell holds one number")
    joined = {name for family in families.values() for name in family}
    table = _csv_table(path, names, joined)
    columns = dict(zip(table.column_names, table.columns, strict=True))
    result: dict[str, Any] = {family: _joined(columns, parts) for family, parts in families.items()}
    for name in (name for name in names if name not in joined):
        values, is_target = _as_numbers(columns[name]), folded(name) in TARGET_NAMES
        if values is None and is_target and classes is None:
            raise ContentError(find_bad_line(path, {name}, [""]) or f"expected numbers in column {name!r}")
        text = columns[name].to_pylist() if is_target else Text("text")
        result[name.strip()] = text if values is None else _column(values, name)
    return result


def _csv_table(path: Path, names: list[str], numbers: set[str]) -> Any:
    """All cells of a CSV file: numbers in the named columns, text in the others."""
    arrow = require_pyarrow()
    types = {name: arrow.float64() if name in numbers else arrow.string() for name in names}
    convert = arrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True)
    parse = arrow.csv.ParseOptions(newlines_in_values=True)
    block = max(CSV_BLOCK_BYTES, COLUMN_BYTES * len(names))
    while True:
        read = arrow.csv.ReadOptions(block_size=block)
        try:
            with path.open("rb") as file:
                return arrow.csv.read_csv(file, read, parse, convert)
        except arrow.ArrowInvalid as error:
            if "straddling" in str(error) and block < path.stat().st_size:
                block *= 8  # a row did not fit into the block
                continue
            raise ContentError(find_bad_line(path, numbers, convert.null_values) or str(error)) from error


def _is_number(kind: Any) -> bool:
    types = require_pyarrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_text(kind: Any) -> bool:
    types = require_pyarrow().types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return any(is_kind(kind) for is_kind in (types.is_string, types.is_large_string, types.is_string_view))


def _word(kind: Any) -> str:
    return "text" if _is_text(kind) else str(kind)


def _other(column: Any, name: str) -> Any:
    """A score or a target; names of classes as a list."""
    return column.to_pylist() if _is_text(column.type) else _column(column, name)


def _column(column: Any, name: str) -> Tensor:
    """A column of one number per row; a missing value is NaN."""
    kind = column.type
    if not _is_number(kind):
        raise ContentError(f"expected numbers in column {name!r}, got {kind}")
    if column.null_count or require_pyarrow().types.is_decimal(kind):
        column = column.cast("float64")
    tensor: Tensor = as_tensor(numpy().array(column.to_numpy()))
    return tensor


def _family(columns: Mapping[str, Any], names: list[str]) -> Tensor:
    """(N, C) from C columns, or from one of lists."""
    if len(names) == 1 and folded(names[0]) == "logits":
        return _lists(columns[names[0]], names[0])
    return _joined(columns, names)


def _joined(columns: Mapping[str, Any], names: list[str]) -> Tensor:
    """(N, C) from C columns, filled in place, so that memory holds no third copy of the table."""
    parts = [_column(columns[name], name) for name in names]
    kind = parts[0].dtype
    for other in {part.dtype for part in parts}:
        kind = torch.promote_types(kind, other)
    logits = torch.empty(len(parts[0]), len(parts), dtype=kind)
    for i, part in enumerate(parts):
        logits[:, i] = part
    return logits


def _lists(column: Any, name: str) -> Tensor:
    """(N, C) from a column with a list of C numbers in each row."""
    types = require_pyarrow().types
    if not any(is_kind(column.type) for is_kind in (types.is_list, types.is_large_list, types.is_fixed_size_list)):
        raise ContentError(f"expected a list of numbers in each row of column {name!r}, got {column.type}")
    if len(column) == 0:
        raise ContentError("expected at least one row of logits, got none")
    lengths = require_pyarrow().compute.unique(require_pyarrow().compute.list_value_length(column)).to_pylist()
    if len(lengths) > 1 or None in lengths:
        shown = ", ".join("none" if n is None else str(n) for n in lengths[:5])
        raise ContentError(f"expected as many logits in every row, got lists of length {shown}")
    return _column(require_pyarrow().compute.list_flatten(column), name).reshape(len(column), lengths[0])


def _as_numbers(column: Any) -> Any:
    """Numbers unchanged, and text as numbers if all of it is numbers; None for other text."""
    arrow = require_pyarrow()
    if _is_number(column.type):
        return column
    try:
        return require_pyarrow().compute.utf8_trim_whitespace(column).cast("float64")
    except arrow.ArrowInvalid:
        return None
