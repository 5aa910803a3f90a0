"""The sums for the concentration as a Triton kernel; `core/spread.py` says what they are.

This module needs Triton, and is imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

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


@triton.jit
def spread(
    logits, odds, squares, mass, mass_squares, classes, stride, dtype: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """One row per program: the sums of its leads if it is flat, its sums relative to the second logit if it is sharp.

    For other rows the earlier sums are kept, and their logits are not read.
    """
    row = tl.program_id(0).to(tl.int64)
    weight, product = tl.load(odds + row).to(tl.float64), tl.load(squares + row)
    flat = weight > (classes - 1) * 0.5
    if flat | (weight < DOWN):
        logits += row * stride
        place_in_block = tl.arange(0, width)
        bests, seconds = tl.full([width], -float("inf"), dtype), tl.full([width], -float("inf"), dtype)
        for start in range(0, classes, width):
            column = start + place_in_block
            z = tl.load(logits + column, mask=column < classes, other=-float("inf")).to(dtype)
            seconds = tl.maximum(seconds, tl.minimum(bests, z))
            bests = tl.maximum(bests, z)
        best = tl.max(bests, 0)
        # The second largest: where a lane has the top, its own second; a sharp row has one top.
        second = tl.max(tl.where(bests == best, seconds, bests), 0) - best
        second = tl.maximum(second, -3e38)  # where all rivals are -inf, a number
        sums, products = tl.zeros([width], dtype), tl.zeros([width], dtype)
        for start in range(0, classes, width):
            column = start + place_in_block
            z = tl.load(logits + column, mask=column < classes, other=-float("inf")).to(dtype)
            below = z - best
            lead = lead_over(below)
            share = tl.where(below < 0.0, tl.exp(tl.minimum(below - second, 0.0)), 0.0)
            sums += tl.where(column < classes, tl.where(flat, lead, share), 0.0)
            square = tl.where(flat, lead / (2.0 - lead) * (lead * UP), share * share)
            products += tl.where(column < classes, square, 0.0)
        unit = tl.exp(second.to(tl.float64))
        weight = tl.sum(sums, 0).to(tl.float64) * tl.where(flat, 1.0, unit)
        product = tl.sum(products, 0).to(tl.float64) * tl.where(flat, DOWN, unit * unit)
    tl.store(mass + row, weight)
    tl.store(mass_squares + row, product)
