"""The sums for the concentration as a Triton kernel; `core/spread.py` says what they are.

This module needs Triton, and is imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

from .addresses import NUMBERS, along, count_of, is_row, start_of
from .quantities import log1p

UP = tl.constexpr(2.0**100)
DOWN = tl.constexpr(2.0**-100)


@triton.jit
def lead_over(below):
    """1 - u of each class, by the series of exp near 1: x (1 - x/2 (1 - x/3 (1 - ...))) with x = -below."""
    x = -below
    series = 1.0 - x * (1.0 / 13.0)
    for i in tl.static_range(12, 1, -1):
        series = 1.0 - series * x * (1.0 / i)
    return tl.where(x < 0.25, x * series, 1.0 - tl.exp(below))


@triton.jit(do_not_specialize=NUMBERS)
def spread(
    logits, odds, squares, mass, mass_squares, log_rest, rows, classes, inner, jump, stride, step,
    bits: tl.constexpr, dtype: tl.constexpr, fast: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """`height` rows per program: the sums of the leads of flat rows, and those of sharp rows by their second logit.

    For other rows the earlier sums are kept, and their logits are not read. The log of the odds is stored as well if
    `log_rest` is not None.
    """
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    real, classes = is_row(row, rows, stride, bits), count_of(classes, stride, bits)
    weight = tl.load(odds + row, mask=real, other=1.0).to(tl.float64)
    product = tl.load(squares + row, mask=real, other=1.0)
    flat = weight > (classes - 1) * 0.5
    needed = real & (flat | (weight < DOWN))
    rest = tl.log(weight)
    if tl.max(needed.to(tl.int32), 0) > 0:
        begin = logits + start_of(row, rows, inner, jump, stride, bits)[:, None]
        lane = tl.arange(0, width)[None, :]
        bests, seconds = tl.full([height, width], -float("inf"), dtype), tl.full([height, width], -float("inf"), dtype)
        for start in range(0, classes, width):
            inside = needed[:, None] & (start + lane < classes)
            z = tl.load(begin + along(start + lane, step, bits), mask=inside, other=-float("inf")).to(dtype)
            seconds = tl.maximum(seconds, tl.minimum(bests, z))
            bests = tl.maximum(bests, z)
        best = tl.max(bests, 1)[:, None]
        # The second largest: where a lane has the top, its own second; a sharp row has one top.
        second = tl.max(tl.where(bests == best, seconds, bests), 1)[:, None] - best
        second = tl.maximum(second, -3e38)  # where all rivals are -inf, a number
        sums, products = tl.zeros([height, width], dtype), tl.zeros([height, width], dtype)
        for start in range(0, classes, width):
            inside = needed[:, None] & (start + lane < classes)
            z = tl.load(begin + along(start + lane, step, bits), mask=inside, other=-float("inf")).to(dtype)
            below = z - best
            lead = lead_over(below)
            share = tl.where(below < 0.0, tl.exp(tl.minimum(below - second, 0.0)), 0.0)
            sums += tl.where(inside, tl.where(flat[:, None], lead, share), 0.0)
            square = tl.where(flat[:, None], lead / (2.0 - lead) * (lead * UP), share * share)
            products += tl.where(inside, square, 0.0)
        far, total = tl.sum(second, 1).to(tl.float64), tl.sum(sums, 1).to(tl.float64)
        unit = tl.exp(far)
        rest = tl.where(needed & (flat == 0), far + tl.log(total), rest)
        # One rival near the top: its lead, the total, has more digits than its odds.
        rest = tl.where(flat & (classes == 2), log1p(-total), rest)
        weight = tl.where(needed, total * tl.where(flat, 1.0, unit), weight)
        found = tl.sum(products, 1).to(tl.float64) * tl.where(flat, DOWN, unit * unit)
        product = tl.where(needed, found, product)
    tl.store(mass + row, weight, mask=real)
    tl.store(mass_squares + row, product, mask=real)
    if log_rest is not None:
        tl.store(log_rest + row, rest, mask=real)
