"""Files of columns, as tensors by name: Parquet and CSV, through Arrow."""

import csv
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..tables import require_pyarrow
from .data import TARGET_NAMES
from .formats import ContentError, as_tensor, require_numpy

LOGIT = re.compile(r"\s*(logit_)?(\d+)\s*")
# What stands between columns in files that some programs call CSV all the same.
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def read_parquet(path: Path) -> dict[str, Tensor]:
    """The columns of a `.parquet` file that hold numbers, the logits joined to one."""
    arrow = require_pyarrow()
    with arrow.parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        parts = _logit_columns(schema.names)
        others = [x.name for x in schema if x.name not in parts and (x.name in TARGET_NAMES or _is_number(x.type))]
        table = file.read(columns=[*parts, *others])
    logits = _lists(table["logits"]) if parts == ["logits"] else _joined(table, parts)
    return {"logits": logits, **{name: _column(table[name], name) for name in others}}


def read_csv(path: Path) -> dict[str, Tensor]:
    """The same of a `.csv` file, whose first line names the columns; all numbers are float64."""
    arrow = require_pyarrow()
    from pyarrow import csv as arrow_csv

    names = _header(path)
    parts = _logit_columns(names)
    if parts == ["logits"]:
        raise ContentError("expected columns logit_0, logit_1, ..., got a column 'logits': a CSV cell holds one number")
    numbers = {name for name in names if name in parts or name.strip() in TARGET_NAMES}
    types = {name: arrow.float64() if name in numbers else arrow.string() for name in names}
    options = arrow_csv.ConvertOptions(column_types=types, strings_can_be_null=True)
    try:
        table = arrow_csv.read_csv(path, convert_options=options)
    except arrow.ArrowInvalid as error:
        raise ContentError(_bad_line(path, numbers, options.null_values) or str(error)) from error
    result = {"logits": _joined(table, parts)}
    for name in names:
        if name not in parts and (values := _as_numbers(table[name])) is not None:
            result[name.strip()] = _column(values, name)
    return result


def _logit_columns(names: list[str]) -> list[str]:
    """The columns that hold the logits, in the order of the classes."""
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ContentError(f"expected columns with different names, got {twice!r} twice")
    found: dict[str, dict[int, str]] = {}
    for name in names:
        if match := LOGIT.fullmatch(name):
            found.setdefault(match[1] or "", {})[int(match[2])] = name
    kinds = [f"{prefix}0, {prefix}1, ..." for prefix in found] + ["logits"] * ("logits" in names)
    if len(kinds) != 1:
        got = f"both {' and '.join(kinds)}" if kinds else f"{', '.join(names[:8])}{', ...' * (len(names) > 8)}"
        raise ContentError(f"expected columns logit_0, logit_1, ... (or 0, 1, ...; or 'logits' of lists), got {got}")
    if not found:
        return ["logits"]
    ((prefix, columns),) = found.items()
    missing = [i for i in range(len(columns)) if i not in columns]
    if missing:
        raise ContentError(
            f"expected columns {prefix}0 to {prefix}{max(columns)}, got {len(columns)} of them: "
            f"{prefix}{missing[0]} is missing"
        )
    return [columns[i] for i in range(len(columns))]


def _is_number(kind: Any) -> bool:
    types = require_pyarrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _column(column: Any, name: str) -> Tensor:
    """One number a row; a missing value is NaN."""
    kind = column.type
    if not _is_number(kind):
        raise ContentError(f"expected numbers in column {name!r}, got {kind}")
    if column.null_count or require_pyarrow().types.is_decimal(kind):
        column = column.cast("float64")
    tensor: Tensor = as_tensor(require_numpy().array(column.to_numpy()))
    return tensor


def _joined(table: Any, names: list[str]) -> Tensor:
    """(N, C) from C columns, filled in place: the table is not held a third time."""
    columns = [_column(table[name], name) for name in names]
    kind = columns[0].dtype
    for column in columns:
        kind = torch.promote_types(kind, column.dtype)
    logits = torch.empty(len(columns[0]), len(columns), dtype=kind)
    for i, column in enumerate(columns):
        logits[:, i] = column
    return logits


def _lists(column: Any) -> Tensor:
    """(N, C) from a column with a list of C numbers in each row."""
    types = require_pyarrow().types
    if not any(is_kind(column.type) for is_kind in (types.is_list, types.is_large_list, types.is_fixed_size_list)):
        raise ContentError(f"expected a list of numbers in each row of column 'logits', got {column.type}")
    if len(column) == 0:
        raise ContentError("expected at least one row of logits, got none")
    from pyarrow import compute

    lengths = compute.unique(compute.list_value_length(column)).to_pylist()
    if len(lengths) > 1 or None in lengths:
        shown = ", ".join("none" if n is None else str(n) for n in lengths[:5])
        raise ContentError(f"expected as many logits in every row, got lists of length {shown}")
    return _column(compute.list_flatten(column), "logits").reshape(len(column), lengths[0])


def _header(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        names = next(csv.reader(file), [])
    found = next((word for mark, word in SEPARATORS.items() if len(names) == 1 and mark in names[0]), None)
    if found:
        start = names[0] if len(names[0]) <= 40 else f"{names[0][:40]}..."
        raise ContentError(f"expected commas between the columns, got {found}: {start!r}; save it with commas")
    return names


def _as_numbers(column: Any) -> Any:
    """Numbers as they are, and from text that is numbers throughout; None for other text."""
    arrow = require_pyarrow()
    from pyarrow import compute

    if _is_number(column.type):
        return column
    try:
        return compute.utf8_trim_whitespace(column).cast("float64")
    except arrow.ArrowInvalid:
        return None


def _bad_line(path: Path, numbers: set[str], missing: list[str]) -> str | None:
    """What is wrong with the first line that has another length than the header, or text where numbers should be."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        names = next(lines)
        for cells in lines:
            if cells and len(cells) != len(names):
                return f"expected {len(names)} cells in line {lines.line_num}, as in the header, got {len(cells)}"
            for name, cell in zip(names, cells, strict=False):
                if name in numbers and cell not in missing and not _is_float(cell):
                    return f"expected a number in line {lines.line_num}, column {name.strip()!r}, got {cell!r}"
    return None


def _is_float(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
