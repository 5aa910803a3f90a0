"""The one pass over the logits as Triton kernels; `core/rows.py` says what is summed, and why it is scaled.

A row that fits on the chip is read once and stays in registers. A longer one is read twice: first for its top, then,
from the cache, for its sums. This module needs Triton, and is imported when the first kernel is launched.

The number of rows is not specialised: a last batch of other size compiles nothing. The classes are, for the alignment.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import torch
import triton
import triton.language as tl

DTYPES = {torch.float32: tl.float32, torch.float64: tl.float64}
UP = tl.constexpr(2.0**100)
DOWN = tl.constexpr(2.0**-100)


@triton.jit
def odds_and_losses(below, rival):
    """2^100 u and u / (1 + u) of each class, both 0 where it is no rival; and `below`, made finite.

    In float32, exp(x) = 2^n exp(r) with x = n ln 2 + r (Cody and Waite): what the GPU has for exp multiplies x by
    log2(e) first, whose rounding can cost 3e-6 at u = 1e-30. Adding 1.5 * 2^23 rounds to an integer and leaves it in
    the low bits, from where it becomes the exponent, that of 2^100 included.
    """
    if below.dtype == tl.float64:
        finite = tl.maximum(below, -1e4)
        scaled = tl.exp(finite) * UP
    else:
        finite = tl.maximum(below, -156.0)  # u = 2^-225, nearly the smallest whose scaled exponent float32 holds
        shifted = finite * 1.4426950408889634 + 12582912.0
        n = shifted - 12582912.0
        rest = (finite - n * 0.693359375) + n * 2.12194440e-4
        power = ((shifted.to(tl.int32, bitcast=True) + 227) << 23).to(tl.float32, bitcast=True)
        scaled = tl.exp2(rest * 1.4426950408889634) * power
    scaled = tl.where(rival, scaled, 0.0)
    odds = scaled * DOWN
    return scaled, odds / (1.0 + odds), finite


@triton.jit
def _load(pointers, mask, dtype: tl.constexpr):
    """Which logits are NaN, and all in the accumulator's dtype: a NaN as +inf, as undefined, but it can be compared."""
    z = tl.load(pointers, mask=mask, other=-float("inf")).to(dtype)
    return tl.where(z == z, z, float("inf")), z != z


@triton.jit(do_not_specialize=["rows"])
def short_rows(
    logits, prediction, top, odds, squares, surprise, margin, rows, classes, stride,
    dtype: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """`height` whole rows per program, of at most `width` classes each; `surprise` and `margin` may be None."""
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    column = tl.arange(0, width)[None, :]
    real = row < rows
    inside = real[:, None] & (column < classes)
    z, nan = _load(logits + row[:, None] * stride + column, inside, dtype)
    best = tl.max(z, 1)
    # The first top or, before all others, the first NaN: as torch.argmax.
    place = tl.min(tl.where(nan, column - width, tl.where(z == best[:, None], column, width)), 1)
    place = tl.where(place < 0, place + width, place)
    below = z - best[:, None]
    rival = inside & (column != place[:, None])
    scaled, loses, finite = odds_and_losses(below, rival)
    undefined = best - best  # 0, or NaN where the top is infinite: such a row has no geometry
    tl.store(prediction + row, place.to(tl.int64), mask=real)
    tl.store(top + row, best + undefined, mask=real)
    tl.store(odds + row, tl.sum(scaled, 1) * DOWN + undefined, mask=real)
    tl.store(squares + row, tl.sum(loses * scaled, 1).to(tl.float64) * DOWN + undefined, mask=real)
    if surprise is not None:
        tl.store(surprise + row, undefined - tl.sum(finite * scaled, 1) * DOWN, mask=real)
        tl.store(margin + row, undefined - tl.sum(tl.where(rival, below, 0.0), 1), mask=real)


@triton.jit
def long_rows(
    logits, prediction, top, odds, squares, surprise, margin, classes, stride,
    dtype: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """One row per program, `width` classes at a time: each place of the block keeps a top and sums of its own."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    place_in_block = tl.arange(0, width)
    bests, places = tl.full([width], -float("inf"), dtype), tl.zeros([width], tl.int32)
    for start in range(0, classes, width):
        column = start + place_in_block
        z, nan = _load(logits + column, column < classes, dtype)
        # The first top or, below 0 and so before all others, the first NaN: as torch.argmax.
        places = tl.where(places < 0, places, tl.where(nan, column - classes, tl.where(z > bests, column, places)))
        bests = tl.maximum(bests, z)
    best = tl.max(bests, 0)
    place = tl.min(tl.where(bests == best, places, classes), 0)
    place = tl.where(place < 0, place + classes, place)
    sums, products = tl.zeros([width], dtype), tl.zeros([width], dtype)
    surprises, margins = tl.zeros([width], dtype), tl.zeros([width], dtype)
    for start in range(0, classes, width):
        column = start + place_in_block
        below = _load(logits + column, column < classes, dtype)[0] - best
        rival = (column < classes) & (column != place)
        scaled, loses, finite = odds_and_losses(below, rival)
        sums += scaled
        products += loses * scaled
        if surprise is not None:
            surprises += finite * scaled
            margins += tl.where(rival, below, 0.0)
    undefined = best - best
    tl.store(prediction + row, place.to(tl.int64))
    tl.store(top + row, best + undefined)
    tl.store(odds + row, tl.sum(sums, 0) * DOWN + undefined)
    tl.store(squares + row, tl.sum(products, 0).to(tl.float64) * DOWN + undefined)
    if surprise is not None:
        tl.store(surprise + row, undefined - tl.sum(surprises, 0) * DOWN)
        tl.store(margin + row, undefined - tl.sum(margins, 0))
