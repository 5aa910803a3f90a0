"""How the rows of logits lie in memory, for kernels that read views without a copy, and how Triton cuts them."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.dtypes import accumulation_dtype

# Vectors of up to 2^4 elements; a GPU loads at most 16 bytes at once.
MOST_BITS = 4
# The longest row that stays in registers, by the dtype of the sums: 32 float32 or 8 float64 for each of 512 threads.
# Twice as many float64 do not fit, because exp needs registers too.
ON_CHIP_CLASSES = {torch.float32: 16384, torch.float64: 4096}
# How much of a row one thread takes, if the row fits easily.
THREAD_BYTES = {torch.float32: 64, torch.float64: 32}
# The block of a longer row, for the largest number of threads in a program: 8 float32 or 2 float64 for each, besides
# its sums.
BLOCK_CLASSES = {torch.float32: 4096, torch.float64: 1024}
MOST_WARPS = 16
# How much one program takes if rows are short: two warps, so that few sums need an exchange between warps.
PROGRAM_BYTES = 2**12
# The most that a thread loads at once.
VECTOR_BYTES = 16
# The least number of rows in a block if rows lie side by side: 128 bytes of float32 are read at once.
ACROSS = 32
# The block of rows that are read again for their masses, and its warps.
MASS_BLOCK, MASS_WARPS = 1024, 4


class Layout(NamedTuple):
    """Where the logit of a row and a class is: `(row // inner) * jump + (row % inner) * stride + column * step`.

    Attributes:
        rows: how many rows.
        classes: C.
        inner: None if all rows lie in one regular step.
        jump: None where `inner` is.
        stride: None stands for 1: neighbouring rows are side by side, as the pixels of an image.
        step: None stands for 1: the classes of a row are side by side.
        bits: 2^bits divides all numbers that must be multiples for vectors of this many elements.
    """

    rows: int
    classes: int
    inner: int | None
    jump: int | None
    stride: int | None
    step: int | None
    bits: int

    @property
    def across(self) -> bool:
        """Whether neighbouring threads should read neighbouring rows, not neighbouring classes."""
        return self.stride is None

    @property
    def numbers(self) -> tuple[int | None, ...]:
        """The numbers that kernels get, in the order of their arguments; `bits` goes to them by name."""
        return self[:6]


def readable(logits: Tensor) -> Tensor:
    """The logits themselves if the axes before the classes join to at most two regular steps, otherwise a copy.

    Contiguous logits, slices such as `logits[:, :-1]`, and images or sequences whose classes come first are not copied.
    """
    return logits if len(_joined(logits)) <= 2 else logits.contiguous()


def layout_of(logits: Tensor) -> Layout:
    """The layout of logits of shape (..., C), or that of their copy where they are not `readable`."""
    classes, step, axes = logits.shape[-1], logits.stride(-1), _joined(logits)
    if len(axes) > 2:
        step, axes = 1, []
    (_, jump), (inner, stride) = [(1, 0), (1, classes), *axes][-2:]
    split = len(axes) == 2
    rows = logits.numel() // classes
    across = stride == 1 and step != 1
    multiples = [1]
    if across:
        multiples = [rows, step, *([inner, jump] if split else [])]
    elif step == 1:
        multiples = [classes, stride, *([jump] if split else [])]
    bits = math.gcd(*multiples, 1 << MOST_BITS).bit_length() - 1
    block, far = (inner, jump) if split else (None, None)
    return Layout(rows, classes, block, far, None if across else stride, None if step == 1 else step, bits)


def _joined(logits: Tensor) -> list[tuple[int, int]]:
    """Size and stride of the axes before the classes. Those that lie in one regular step are joined.

    An axis of size 1 is left out only if there would be more than two: a last batch of one sample needs no new kernel.
    """
    axes = [*zip(logits.shape[:-1], logits.stride()[:-1], strict=True)]
    joined = join(axes)
    return joined if len(joined) <= 2 else join([x for x in axes if x[0] != 1])


def join(axes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The axes, of which each has a size and a stride, with those that lie in one regular step as one."""
    joined: list[tuple[int, int]] = []
    for size, stride in axes:
        if joined and joined[-1][1] == size * stride:
            joined[-1] = joined[-1][0] * size, stride
        else:
            joined.append((size, stride))
    return joined


def geometry(classes: int, dtype: torch.dtype, *, across: bool = False, heavy: bool = False) -> dict[str, Any]:
    """How logits of this dtype are cut: `height` rows per program that fit on chip, or a part of a row; and warps.

    `width` is the number of classes in a block. For a longer row, `group` is the number of logits in one vector. If
    rows lie `across`, a block has at least as many rows as the memory delivers at once. In a `heavy` kernel each class
    needs many registers, and a thread takes half as many classes.
    """
    wide = accumulation_dtype(dtype)
    width = 1 << (classes - 1).bit_length()
    if width * (1 + (heavy or across)) > ON_CHIP_CLASSES[wide]:  # addresses of rows that lie across need registers too
        block = BLOCK_CLASSES[wide] // (1 + heavy)
        return {"group": VECTOR_BYTES // dtype.itemsize, "width": block, "num_warps": MOST_WARPS}
    height = max(1, PROGRAM_BYTES // (width * wide.itemsize))
    if across:
        height = max(height, min(ACROSS, ON_CHIP_CLASSES[wide] // (width * (1 + heavy))))
    warps = (1 + heavy) * height * width * wide.itemsize // (32 * THREAD_BYTES[wide])
    return {"height": height, "width": width, "num_warps": min(MOST_WARPS, warps)}


def mass_geometry(layout: Layout) -> dict[str, int]:
    """The same for rows that are read again for their masses."""
    width = min(MASS_BLOCK, 1 << (layout.classes - 1).bit_length())
    if layout.across:
        width = min(width, MASS_BLOCK // ACROSS)
    return {"height": MASS_BLOCK // width, "width": width, "num_warps": MASS_WARPS}
