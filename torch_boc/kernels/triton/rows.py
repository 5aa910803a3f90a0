"""The one pass over the logits as Triton kernels; `core/rows.py` says what is summed, and why it is scaled.

A row that fits on the chip is read once and stays in registers. A longer one is read twice: first for its top, then,
from the cache, for its sums. This module needs Triton, and is imported when the first kernel is launched.

If a block has more classes than the row, the others are -inf: what they add to the sums is less than the rounding.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import torch
import triton
import triton.language as tl

from .addresses import NUMBERS, along, count_of, is_row, start_of
from .exponentials import DOWN, key_of, odds_and_losses, top_of

DTYPES = {torch.float32: tl.float32, torch.float64: tl.float64}
# A vector may begin at every multiple of this many logits.
ALIGNED = tl.constexpr(8)


@triton.jit(do_not_specialize=NUMBERS)
def short_rows(
    logits, prediction, top, odds, squares, surprise, margin, rows, classes, inner, jump, stride, step,
    bits: tl.constexpr, dtype: tl.constexpr, fast: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """`height` whole rows per program, of at most `width` classes each; `surprise` and `margin` may be None."""
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    column = tl.arange(0, width)[None, :]
    real = is_row(row, rows, stride, bits)
    inside = real[:, None] & (column < count_of(classes, stride, bits))
    start = start_of(row, rows, inner, jump, stride, bits)
    z = tl.load(logits + start[:, None] + along(column, step, bits), mask=inside, other=-float("inf")).to(dtype)
    best = top_of(z, 1, fast)
    undefined = best - best  # 0, or NaN where the top is infinite: such a row has no geometry
    place = tl.min(tl.where(z == best[:, None], column, width), 1)
    if tl.max((undefined != 0.0).to(tl.int32), 0) > 0:  # before all others comes the first NaN: as torch.argmax
        place = tl.min(key_of(z, best[:, None], column, width), 1)
        place = tl.where(place < 0, place + width, place)
    below = z - best[:, None]
    if surprise is not None:  # at once, because the classes that are not there need registers
        tl.store(margin + row, undefined - tl.sum(tl.where(inside, below, 0.0), 1), mask=real)
    scaled, loses, finite = odds_and_losses(below, fast)
    scaled = tl.where(column == place[:, None], 0.0, scaled)
    tl.store(prediction + row, place.to(tl.int64), mask=real)
    tl.store(top + row, best + undefined, mask=real)
    tl.store(odds + row, tl.sum(scaled, 1) * DOWN + undefined, mask=real)
    tl.store(squares + row, tl.sum(loses * scaled, 1).to(tl.float64) * DOWN + undefined, mask=real)
    if surprise is not None:
        tl.store(surprise + row, undefined - tl.sum(finite * scaled, 1) * DOWN, mask=real)


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
def _find_top(
    logits, first, end, step, dtype: tl.constexpr, fast: tl.constexpr, group: tl.constexpr, width: tl.constexpr
):
    """The top of a row and its place: of each `group`, a vector, the top so far and the first block that has it."""
    bests, starts = tl.full([width // group], -float("inf"), dtype), tl.zeros([width // group], tl.int32)
    for start in range(0, end, width):
        z = load_block(logits, start, first, end, -1, step, dtype, width)
        tops = top_of(tl.reshape(z, [width // group, group]), 1, fast)
        starts = tl.where(tops > bests, start, starts)
        bests = tl.maximum(bests, tops, propagate_nan=tl.PropagateNan.ALL)
    best = top_of(bests, 0, fast)
    start = tl.min(tl.where(bests == best, starts, end), 0)
    stop = start + 1
    if best - best != 0.0:  # the first NaN can be in any block
        start, stop = first * 0, end
    place = end
    for begin in range(start, stop, width):
        z = load_block(logits, begin, first, end, -1, step, dtype, width)
        column = begin + tl.arange(0, width)
        # Where the block has no class there is -inf, which is the top of a row that is all -inf.
        keys = tl.where(column >= first, key_of(z, best, column, end), end)
        place = tl.minimum(place, tl.min(keys, 0))
    return best, tl.where(place < 0, place + end, place)


@triton.jit(do_not_specialize=NUMBERS)
def long_rows(
    logits, prediction, top, odds, squares, surprise, margin, rows, classes, inner, jump, stride, step,
    bits: tl.constexpr, dtype: tl.constexpr, fast: tl.constexpr, group: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """One row per program, `width` classes at a time: each place of the block keeps sums of its own."""
    row = tl.program_id(0).to(tl.int64)
    begin, first, end = aligned(start_of(row, rows, inner, jump, stride, bits), classes, step)
    logits += begin
    best, place = _find_top(logits, first, end, step, dtype, fast, group, width)
    sums, products = tl.zeros([width], dtype), tl.zeros([width], dtype)
    surprises, margins = tl.zeros([width], dtype), tl.zeros([width], dtype)
    for start in range(0, end, width):
        below = load_block(logits, start, first, end, place, step, dtype, width) - best
        scaled, loses, finite = odds_and_losses(below, fast)
        sums += scaled
        products += loses * scaled
        if surprise is not None:
            surprises += finite * scaled
            margins += tl.where(is_inside(start, first, end, place, width), below, 0.0)
    undefined = best - best
    tl.store(prediction + row, (place - first).to(tl.int64))
    tl.store(top + row, best + undefined)
    tl.store(odds + row, tl.sum(sums, 0) * DOWN + undefined)
    tl.store(squares + row, tl.sum(products, 0).to(tl.float64) * DOWN + undefined)
    if surprise is not None:
        tl.store(surprise + row, undefined - tl.sum(surprises, 0) * DOWN)
        tl.store(margin + row, undefined - tl.sum(margins, 0))
