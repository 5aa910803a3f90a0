"""Columns of Ray's blocks as tensors."""

from typing import Any

from torch import Tensor

from .._optional import require_pyarrow
from ..data.arrays import as_tensor, numpy
from ..data.columns import is_list, list_column, number_column


def column_tensor(table: Any, name: str) -> Tensor:
    """A column of a `pyarrow.Table` as a tensor with memory of its own, with a row of it for each row of the table.

    It holds numbers, lists of numbers that are equally long, or the tensors of one shape that Ray makes of arrays.

    Args:
        table: the table, such as a block that `fold` gives.
        name: the name of the column.

    >>> import pyarrow
    >>> column_tensor(pyarrow.table({"logits": [[2.0, 1.0], [0.0, 3.0]]}), "logits").shape
    torch.Size([2, 2])
    """
    if name not in table.column_names:
        raise ValueError(f"expected a column {name!r}, got {', '.join(table.column_names) or 'no columns'}")
    column = table[name]
    if is_list(column.type):
        return list_column(column, name)
    if isinstance(column.type, require_pyarrow().BaseExtensionType):
        return _stacked(column, name)
    return number_column(column, name)


def _stacked(column: Any, name: str) -> Tensor:
    """The tensors of a column, in a type of Arrow or in one of the types that Ray has for them."""
    parts = [_array(chunk) for chunk in column.chunks]
    tensor = as_tensor(numpy().concatenate(parts))  # a copy: Ray's arrays are read-only
    if not isinstance(tensor, Tensor):
        raise ValueError(f"expected numbers, or tensors of one shape, in column {name!r}, got {column.type}")
    return tensor


def _array(chunk: Any) -> Any:
    """A chunk as an array; one of objects if the shapes differ. The second form is for Ray 2.51."""
    return chunk.to_numpy_ndarray() if hasattr(chunk, "to_numpy_ndarray") else chunk.to_numpy(zero_copy_only=False)
