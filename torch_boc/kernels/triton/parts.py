"""Few long rows are split: several programs each take a part of the classes, because one per row leaves a GPU idle.

The same kernel is launched several times, and `stage` says what it does. It is a number, not a constant of the code: a
last batch with few rows compiles nothing. Numbers of the parts go to a table in float64 with a column for each part,
and are joined in a fixed order, so that every run gives the same bits. This module needs Triton, and is imported when
the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

from .exponentials import top_of
from .geometry import MOST_PARTS as PARTS
from .geometry import Stage

# A row is not split; the parts find their tops; they take their sums; the sums are joined.
WHOLE = tl.constexpr(int(Stage.WHOLE))
TOPS = tl.constexpr(int(Stage.TOPS))
SUMS = tl.constexpr(int(Stage.SUMS))
JOIN = tl.constexpr(int(Stage.JOIN))
MOST_PARTS = tl.constexpr(PARTS)
# So many parts of several rows are joined at once: more of them would need too many registers.
SOME_PARTS = tl.constexpr(32)


@triton.jit
def owner(parts, stage):
    """The row of this program, or its group of rows: one program for each of the parts, or one to join them."""
    program = tl.program_id(0)
    return tl.where(stage == JOIN, program, program // parts).to(tl.int64)


@triton.jit
def part_of(end, parts, width: tl.constexpr):
    """Where the part of this program begins, and its size: whole blocks, but nothing if the others have taken all.

    The compiler must see that the start is a multiple of the block, or it would load no vectors.
    """
    blocks = tl.cdiv(tl.cdiv(end, width), parts)
    low = (tl.program_id(0) % parts) * blocks * width
    return low, tl.minimum(blocks * width, end - low)


@triton.jit
def put(table, column: tl.constexpr, row, rows, parts, value, mask=None):
    """Write a number of the part of this program."""
    tl.store(table + (column * rows + row) * parts + tl.program_id(0) % parts, value.to(tl.float64), mask=mask)


@triton.jit
def total(table, column: tl.constexpr, row, rows, parts):
    """The sum of a number over all parts of a row."""
    lane = tl.arange(0, MOST_PARTS)
    return tl.sum(tl.load(table + (column * rows + row) * parts + lane, mask=lane < parts, other=0.0), 0)


@triton.jit
def of_parts(table, column: tl.constexpr, row, rows, start, parts, mask, other):
    """A number of SOME_PARTS of the parts of several rows, from part `start` on; `other` where there is no part."""
    lane = start + tl.arange(0, SOME_PARTS)[None, :]
    place = table + ((column * rows + row) * parts)[:, None] + lane
    return tl.load(place, mask=mask[:, None] & (lane < parts), other=other)


@triton.jit
def joined_top(table, row, rows, parts, end, dtype: tl.constexpr, fast: tl.constexpr):
    """The top of a row and its key, as `find_top` finds them, from the parts; keys count from the start of the row."""
    lane = tl.arange(0, MOST_PARTS)
    real, place = lane < parts, table + row * parts + lane
    tops = tl.load(place, mask=real, other=-float("inf")).to(dtype)
    keys = tl.load(place + rows * parts, mask=real, other=0.0).to(tl.int32)
    best = top_of(tops, 0, fast)
    has_it = real & ((tops == best) | (tops != tops))
    return best, tl.min(tl.where(has_it, keys, end), 0)
