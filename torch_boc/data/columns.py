"""Columns of Arrow tables as tensors."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .._optional import require_pyarrow
from .arrays import as_tensor, numpy
from .formats import ContentError
from .selection import folded


def is_number(kind: Any) -> bool:
    types = require_pyarrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_text(kind: Any) -> bool:
    types = require_pyarrow().types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return any(is_kind(kind) for is_kind in (types.is_string, types.is_large_string, types.is_string_view))


def kind_word(kind: Any) -> str:
    return "text" if _is_text(kind) else str(kind)


def other_column(column: Any, name: str) -> Any:
    """A score or a target; names of classes as a list."""
    return column.to_pylist() if _is_text(column.type) else number_column(column, name)


def number_column(column: Any, name: str) -> Tensor:
    """A column of one number per row; a missing value is NaN."""
    kind = column.type
    if not is_number(kind):
        raise ContentError(f"expected numbers in column {name!r}, got {kind}")
    if column.null_count or require_pyarrow().types.is_decimal(kind):
        column = column.cast("float64")
    tensor: Tensor = as_tensor(numpy().array(column.to_numpy()))
    return tensor


def join_family(columns: Mapping[str, Any], names: list[str]) -> Tensor:
    """(N, C) from C columns, or from one of lists."""
    if len(names) == 1 and folded(names[0]) == "logits":
        return list_column(columns[names[0]], names[0])
    return join_columns(columns, names)


def join_columns(columns: Mapping[str, Any], names: list[str]) -> Tensor:
    """(N, C) from C columns, filled in place, so that memory holds no third copy of the table."""
    parts = [number_column(columns[name], name) for name in names]
    kind = parts[0].dtype
    for other in {part.dtype for part in parts}:
        kind = torch.promote_types(kind, other)
    logits = torch.empty(len(parts[0]), len(parts), dtype=kind)
    for i, part in enumerate(parts):
        logits[:, i] = part
    return logits


def list_column(column: Any, name: str) -> Tensor:
    """(N, C) from a column with a list of C numbers in each row."""
    if not is_list(column.type):
        raise ContentError(f"expected a list of numbers in each row of column {name!r}, got {column.type}")
    if len(column) == 0:
        raise ContentError("expected at least one row of logits, got none")
    lengths = list_lengths(column)
    check_lengths(lengths)
    return number_column(require_pyarrow().compute.list_flatten(column), name).reshape(len(column), lengths[0] or 0)


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is one of lists."""
    types = require_pyarrow().types
    return any(is_kind(kind) for is_kind in (types.is_list, types.is_large_list, types.is_fixed_size_list))


def list_lengths(column: Any) -> list[int | None]:
    """The different lengths of the lists in a column, in the order in which they come; None for a missing list."""
    arrow = require_pyarrow()
    found: list[int | None] = arrow.compute.unique(arrow.compute.list_value_length(column)).to_pylist()
    return found


def check_lengths(lengths: Sequence[int | None]) -> None:
    """Raise unless all lists have one length."""
    if len(lengths) > 1 or None in lengths:
        shown = ", ".join("none" if n is None else str(n) for n in lengths[:5])
        raise ContentError(f"expected as many logits in every row, got lists of length {shown}")


def numbers_in_text(column: Any) -> Any:
    """Numbers unchanged, and text as numbers if all of it is numbers; None for other text."""
    arrow = require_pyarrow()
    if is_number(column.type):
        return column
    try:
        return require_pyarrow().compute.utf8_trim_whitespace(column).cast("float64")
    except arrow.ArrowInvalid:
        return None
