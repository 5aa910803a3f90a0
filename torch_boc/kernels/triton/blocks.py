"""How the kernels read a long row block by block, and find its top; this module needs Triton."""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

from .addresses import along
from .exponentials import key_of, top_of

# A vector may begin at every multiple of this many logits.
ALIGNED = tl.constexpr(8)


@triton.jit
def aligned(begin, classes, step):
    """An aligned start at or before that of a row, and which places from there on, first and end, are of the row."""
    first = begin.to(tl.int32) * 0
    if step is None:
        first = (begin % ALIGNED).to(tl.int32)
        begin = begin // ALIGNED * ALIGNED
    return begin, first, first + classes


@triton.jit
def is_inside(start, first, end, but, width: tl.constexpr):
    """Which places of a block are of the row, and not `but`."""
    place = start + tl.arange(0, width)
    # Negative numbers are large without a sign: one comparison for both ends.
    return ((place - first).to(tl.uint32) < (end - first).to(tl.uint32)) & (place != but)


@triton.jit
def load_block(logits, start, first, end, but, step, dtype: tl.constexpr, width: tl.constexpr):
    """A block of a row from `start` on, without the place `but`: in vectors if it is whole, as all but three are."""
    pointers = logits + along(start + tl.arange(0, width), step, 0)
    if (start >= first) & (start + width <= end) & ((but < start) | (but >= start + width)):
        z = tl.load(pointers)
    else:
        z = tl.load(pointers, mask=is_inside(start, first, end, but, width), other=-float("inf"))
    return z.to(dtype)


@triton.jit
def find_top(
    logits, size, first, end, step, dtype: tl.constexpr, fast: tl.constexpr, group: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """The top of the first `size` classes, and its key: the place of the first such top, minus `end` for a NaN.

    Each `group`, a vector, has its top so far and the first block with it.
    """
    bests, starts = tl.full([width // group], -float("inf"), dtype), tl.zeros([width // group], tl.int32)
    for start in range(0, size, width):
        z = load_block(logits, start, first, end, -1, step, dtype, width)
        tops = top_of(tl.reshape(z, [width // group, group]), 1, fast)
        starts = tl.where(tops > bests, start, starts)
        bests = tl.maximum(bests, tops, propagate_nan=tl.PropagateNan.ALL)
    best = top_of(bests, 0, fast)
    start = tl.min(tl.where(bests == best, starts, end), 0)
    stop = start + 1
    if best - best != 0.0:  # the first NaN can be in any block
        start, stop = size * 0, size
    key = end
    for begin in range(start, stop, width):
        z = load_block(logits, begin, first, end, -1, step, dtype, width)
        column = begin + tl.arange(0, width)
        # Where the block has no class there is -inf, which is the top of a row that is all -inf.
        keys = tl.where(column >= first, key_of(z, best, column, end), end)
        key = tl.minimum(key, tl.min(keys, 0))
    return best, key
