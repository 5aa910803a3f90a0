"""The one pass over the logits as Triton kernels; `core/rows.py` says what is summed, and why it is scaled.

A row that fits on the chip is read once and stays in registers. A longer one is read twice: first for its top, then,
from the cache, for its sums. If there are few such rows, several programs share each of them (see `parts.py`). This
module needs Triton, and is imported when the first kernel is launched.

If a block has more classes than the row, the others are -inf: what they add to the sums is less than the rounding.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import torch
import triton
import triton.language as tl

from .addresses import NUMBERS, along, count_of, is_row, start_of
from .blocks import aligned, find_top, is_inside, load_block
from .exponentials import DOWN, key_of, odds_and_losses, top_of
from .parts import JOIN, SUMS, TOPS, WHOLE, joined_top, owner, part_of, put, total

NARROW = tl.constexpr(128)  # so many classes or fewer: a warp has several rows
DTYPES = {torch.float32: tl.float32, torch.float64: tl.float64}


@triton.jit
def _every_fourth(begin, real, classes, first: tl.constexpr, width: tl.constexpr):
    """The columns first, first + 4, and so on."""
    column = tl.arange(0, width // 4)[None, :] * 4 + first
    return tl.load(begin + column, mask=real[:, None] & (column < classes), other=-float("inf"))


@triton.jit
def load_rows(begin, real, classes, stride, step, bits: tl.constexpr, width: tl.constexpr):
    """Whole rows.

    If narrow rows cannot be loaded in vectors, a thread loads four neighbouring logits one by one. Left to itself, the
    compiler would give neighbours to different threads, and each sum of a row would take two more exchanges of threads.
    """
    if bits < 2 and width >= 4 and width <= NARROW and step is None and stride is not None:
        even = tl.join(_every_fourth(begin, real, classes, 0, width), _every_fourth(begin, real, classes, 2, width))
        odd = tl.join(_every_fourth(begin, real, classes, 1, width), _every_fourth(begin, real, classes, 3, width))
        z = tl.reshape(tl.join(even, odd), [even.shape[0], width])
    else:
        column = tl.arange(0, width)[None, :]
        inside = real[:, None] & (column < count_of(classes, stride, bits))
        z = tl.load(begin + along(column, step, bits), mask=inside, other=-float("inf"))
    return z


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
    z = load_rows(logits + start[:, None], real, classes, stride, step, bits, width).to(dtype)
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


@triton.jit(do_not_specialize=[*NUMBERS, "parts", "stage"])
def long_rows(
    logits, prediction, top, odds, squares, surprise, margin, table, rows, classes, inner, jump, stride, step,
    parts, stage,
    bits: tl.constexpr, dtype: tl.constexpr, fast: tl.constexpr, group: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """One row or a part of it per program, `width` classes at a time: each place of the block keeps sums of its own."""
    row = owner(parts, stage)
    begin, first, end = aligned(start_of(row, rows, inner, jump, stride, bits), classes, step)
    low, size = part_of(end, parts, width)
    logits += begin + along(low, step, 0)
    first, end = first - low, end - low  # all places count from the start of the part
    # Loops of no turns, not branches around them, which would need more registers.
    best, key = find_top(logits, tl.where(stage <= TOPS, size, 0), first, end, step, dtype, fast, group, width)
    place = tl.where(key < 0, key + end, key)
    if stage >= SUMS:
        best, key = joined_top(table, row, rows, parts, end + low, dtype, fast)
        place = tl.where(key < 0, key + end, key - low)
    sums, products = tl.zeros([width], dtype), tl.zeros([width], dtype)
    surprises, margins = tl.zeros([width], dtype), tl.zeros([width], dtype)
    for start in range(0, tl.where((stage == WHOLE) | (stage == SUMS), size, 0), width):
        below = load_block(logits, start, first, end, place, step, dtype, width) - best
        scaled, loses, finite = odds_and_losses(below, fast)
        sums += scaled
        products += loses * scaled
        if surprise is not None:
            surprises += finite * scaled
            margins += tl.where(is_inside(start, first, end, place, width), below, 0.0)
    weight, product = tl.sum(sums, 0).to(tl.float64) * DOWN, tl.sum(products, 0).to(tl.float64) * DOWN
    amount, distance = weight, weight
    if surprise is not None:
        amount, distance = tl.sum(surprises, 0).to(tl.float64) * DOWN, tl.sum(margins, 0).to(tl.float64)
    if stage == TOPS:
        put(table, 0, row, rows, parts, best)
        # A part without classes has no top, and its key is its end, which is negative too.
        put(table, 1, row, rows, parts, tl.where((key < 0) & (key != end), key, key + low))
    if stage == SUMS:
        put(table, 2, row, rows, parts, weight)
        put(table, 3, row, rows, parts, product)
        if surprise is not None:
            put(table, 4, row, rows, parts, amount)
            put(table, 5, row, rows, parts, distance)
    if stage == JOIN:
        weight, product = total(table, 2, row, rows, parts), total(table, 3, row, rows, parts)
        if surprise is not None:
            amount, distance = total(table, 4, row, rows, parts), total(table, 5, row, rows, parts)
    if (stage == WHOLE) | (stage == JOIN):
        undefined = best - best
        tl.store(prediction + row, (place - first).to(tl.int64))
        tl.store(top + row, best + undefined)
        tl.store(odds + row, weight.to(dtype) + undefined)
        tl.store(squares + row, product + undefined)
        if surprise is not None:
            tl.store(surprise + row, undefined - amount.to(dtype))
            tl.store(margin + row, undefined - distance.to(dtype))
