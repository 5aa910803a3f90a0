"""Arrays of NumPy: as tensors, and the headers before them in files."""

import math
from typing import Any, NamedTuple

import torch

from .._optional import require


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


class ArrayHeader(NamedTuple):
    """What stands before the numbers of an array in NumPy's format.

    Attributes:
        shape: the shape of the array.
        by_column: whether the first axis changes fastest, as in Fortran.
        kind: the dtype of NumPy.
        offset: the place of the first number in the file.
    """

    shape: tuple[int, ...]
    by_column: bool
    kind: Any
    offset: int


def array_header(file: Any, size: int) -> ArrayHeader | None:
    """The header of an array, read from an open file of `size` bytes; None in a version that only NumPy itself reads.

    An array that is larger in its header than in the file is an error, before memory is allocated for it.
    """
    form = numpy().lib.format
    reads = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
    read = reads.get(form.read_magic(file))
    if read is None:
        return None
    shape, by_column, kind = read(file)
    header = ArrayHeader(shape, by_column, kind, file.tell())
    if not kind.hasobject and math.prod(shape) * kind.itemsize > size - header.offset:
        raise ValueError(f"its header says that the array has the shape {shape}, but the file is smaller")
    return header
