"""Arrays in open files, of which some rows are read at a time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .arrays import ArrayHeader, as_tensor, numpy

# The bytes that are asked of a file at once. A compressed file gives them as a copy.
PIECE = 2**20


class Foreign(NamedTuple):
    """The header of an array that no tensor can hold, such as one of text."""

    shape: tuple[int, ...]
    dtype: Any


class WholeArray:
    """An array in memory, with the methods of `RowArray`."""

    def __init__(self, values: Any) -> None:
        self.header = self._values = values

    def read(self, start: int, stop: int) -> Any:
        """Some rows."""
        return self._values[start:stop]

    def all(self) -> Any:
        """The whole array."""
        return self._values


class RowArray:
    """An array in an open file.

    Args:
        file: the file. Without an `offset`, it stands at the first number, and rows are read in order.
        header: a tensor on the device "meta", or a `Foreign`.
        shape: the shape of the array.
        itemsize: the bytes of one number.
        decode: makes an array of a shape out of bytes.
        offset: the place of the first number in the file.
        by_column: whether the first axis changes fastest. This needs an `offset`.
    """

    def __init__(
        self,
        file: Any,
        header: Any,
        shape: tuple[int, ...],
        itemsize: int,
        decode: Callable[[Any, tuple[int, ...]], Any],
        *,
        offset: int | None = None,
        by_column: bool = False,
    ) -> None:
        self.header = header
        self._file, self._shape, self._itemsize, self._decode = file, shape, itemsize, decode
        self._offset, self._by_column = offset, by_column and len(shape) > 1
        self._row = itemsize
        for size in shape[1:]:
            self._row *= size

    def read(self, start: int, stop: int) -> Any:
        """Some rows."""
        buffer = numpy().empty((stop - start) * self._row, "uint8")
        rest = self._shape[1:]
        if not self._by_column:
            self._fill(buffer, start * self._row)
            return self._decode(buffer, (stop - start, *rest))
        width = (stop - start) * self._itemsize
        for column in range(self._row // self._itemsize):
            place = (column * self._shape[0] + start) * self._itemsize
            self._fill(buffer[column * width : (column + 1) * width], place)
        turned = self._decode(buffer, (*reversed(rest), stop - start))
        return turned.permute(*reversed(range(turned.ndim))) if isinstance(turned, Tensor) else turned.T

    def all(self) -> Any:
        """The whole array."""
        return self.read(0, self._shape[0]) if self._shape else self.read(0, 1).reshape(())

    def _fill(self, buffer: Any, place: int) -> None:
        """Fill the buffer with the bytes of the file, from a place in the array on."""
        if self._offset is not None:
            self._file.seek(self._offset + place)
        view = memoryview(buffer)
        while len(view):
            got = self._file.readinto(view[:PIECE])
            if not got:
                raise ValueError("the file ends in the middle of an array")
            view = view[got:]


def numpy_array(file: Any, header: ArrayHeader, *, offset: int | None = None) -> RowArray:
    """An array in NumPy's format."""
    kind = header.kind
    empty = as_tensor(numpy().empty(0, kind))

    def decode(buffer: Any, shape: tuple[int, ...]) -> Any:
        return as_tensor(numpy().ndarray(shape, kind, buffer))

    known = hollow(header.shape, empty.dtype) if isinstance(empty, Tensor) else Foreign(header.shape, kind)
    return RowArray(file, known, header.shape, kind.itemsize, decode, offset=offset, by_column=header.by_column)


def tensor_array(file: Any, shape: tuple[int, ...], dtype: torch.dtype, *, offset: int) -> RowArray:
    """A tensor as safetensors stores it. Floats of one byte become float32, as in `wide`."""
    wide = torch.float32 if dtype.is_floating_point and dtype.itemsize == 1 else dtype

    def decode(buffer: Any, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(buffer).view(dtype).reshape(shape).to(wide)

    return RowArray(file, hollow(shape, wide), shape, dtype.itemsize, decode, offset=offset)


def hollow(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor with a shape and a dtype, and no values."""
    return torch.empty(shape, dtype=dtype, device="meta")
