"""The sums for the concentration as a Triton kernel; `core/spread.py` says what they are.

This module needs Triton, and is imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

from .addresses import NUMBERS, along, count_of, is_row, start_of
from .parts import JOIN, SOME_PARTS, SUMS, of_parts, owner, part_of, put
from .quantities import log1p

UP = tl.constexpr(2.0**100)
DOWN = tl.constexpr(2.0**-100)
# How far the second logit is below the top where all rivals are -inf: a number, whose exp is 0.
FARTHEST = tl.constexpr(-3e38)


@triton.jit
def lead_over(below):
    """1 - u of each class, by the series of exp near 1: x (1 - x/2 (1 - x/3 (1 - ...))) with x = -below."""
    x = -below
    series = 1.0 - x * (1.0 / 13.0)
    for i in tl.static_range(12, 1, -1):
        series = 1.0 - series * x * (1.0 / i)
    return tl.where(x < 0.25, x * series, 1.0 - tl.exp(below))


@triton.jit
def _second(
    begin, best, needed, size, classes, step,
    bits: tl.constexpr, dtype: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """The largest distance below the top among the rivals of a part; a sharp row has one top."""
    lane = tl.arange(0, width)[None, :]
    rivals = tl.full([height, width], -float("inf"), dtype)
    for start in range(0, size, width):
        inside = needed[:, None] & (start + lane < classes)
        z = tl.load(begin + along(start + lane, step, bits), mask=inside, other=-float("inf")).to(dtype)
        rivals = tl.maximum(rivals, tl.where(z < best, z, -float("inf")))
    return tl.maximum(tl.max(rivals, 1)[:, None] - best, FARTHEST)


@triton.jit
def _sums(
    begin, best, flat, sharp, size, classes, step,
    bits: tl.constexpr, dtype: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """The sums of a part, and how far below the top the rival is to which they are relative: its largest rival.

    Flat rows have the sums of the leads, the second one times UP, and a distance of 0.
    """
    needed = flat | sharp
    second = tl.zeros([height, 1], dtype)
    if tl.max(sharp.to(tl.int32), 0) > 0:
        second = _second(begin, best, sharp, size, classes, step, bits, dtype, height, width)
    lane = tl.arange(0, width)[None, :]
    sums, products = tl.zeros([height, width], dtype), tl.zeros([height, width], dtype)
    for start in range(0, size, width):
        inside = needed[:, None] & (start + lane < classes)
        below = tl.load(begin + along(start + lane, step, bits), mask=inside, other=-float("inf")).to(dtype) - best
        lead = lead_over(below)
        share = tl.where(below < 0.0, tl.exp(tl.minimum(below - second, 0.0)), 0.0)
        sums += tl.where(inside, tl.where(flat[:, None], lead, share), 0.0)
        square = tl.where(flat[:, None], lead / (2.0 - lead) * (lead * UP), share * share)
        products += tl.where(inside, square, 0.0)
    far = tl.where(flat, 0.0, tl.sum(second, 1).to(tl.float64))
    return tl.sum(sums, 1).to(tl.float64), tl.sum(products, 1).to(tl.float64), far


@triton.jit
def _joined(table, row, rows, parts, needed, height: tl.constexpr):
    """The same of whole rows: the sums of all parts, relative to the largest rival of all."""
    fars = tl.full([height, SOME_PARTS], FARTHEST, tl.float64)
    for part in range(0, parts, SOME_PARTS):
        fars = tl.maximum(fars, of_parts(table, 2, row, rows, part, parts, needed, FARTHEST))
    far = tl.max(fars, 1)
    sums, products = tl.zeros([height, SOME_PARTS], tl.float64), tl.zeros([height, SOME_PARTS], tl.float64)
    for part in range(0, parts, SOME_PARTS):
        unit = tl.exp(of_parts(table, 2, row, rows, part, parts, needed, FARTHEST) - far[:, None])
        sums += unit * of_parts(table, 0, row, rows, part, parts, needed, 0.0)
        products += unit * unit * of_parts(table, 1, row, rows, part, parts, needed, 0.0)
    return tl.sum(sums, 1), tl.sum(products, 1), far


@triton.jit
def _log_rest(total, far, flat, classes, rest):
    """The log of the odds of rows that were read again; `rest`, the log of their odds, for other flat rows."""
    # One rival near the top: its lead, the total, has more digits than its odds.
    return tl.where(flat, tl.where(classes == 2, log1p(-total), rest), far + tl.log(total))


@triton.jit(do_not_specialize=[*NUMBERS, "parts", "stage"])
def spread(
    logits, top, odds, squares, mass, mass_squares, log_rest, table,
    rows, classes, inner, jump, stride, step, parts, stage,
    bits: tl.constexpr, dtype: tl.constexpr, fast: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """`height` rows per program: the sums of the leads of flat rows, and those of sharp rows by their second logit.

    For other rows the earlier sums are kept, and their logits are not read. The log of the odds is stored as well if
    `log_rest` is not None.
    """
    row = owner(parts, stage) * height + tl.arange(0, height)
    real, classes = is_row(row, rows, stride, bits), count_of(classes, stride, bits)
    weight = tl.load(odds + row, mask=real, other=1.0).to(tl.float64)
    product = tl.load(squares + row, mask=real, other=1.0)
    flat, sharp = real & (weight > (classes - 1) * 0.5), real & (weight < DOWN)
    needed, rest = flat | sharp, tl.log(weight)
    if tl.max(needed.to(tl.int32), 0) > 0:
        if stage == JOIN:
            first, second, far = _joined(table, row, rows, parts, needed, height)
        else:
            best = tl.load(top + row, mask=needed, other=0.0)[:, None]
            begin = logits + start_of(row, rows, inner, jump, stride, bits)[:, None]
            low, size = part_of(classes, parts, width)
            begin += along(low, step, bits)
            first, second, far = _sums(begin, best, flat, sharp, size, classes - low, step, bits, dtype, height, width)
            if stage == SUMS:
                put(table, 0, row, rows, parts, first, needed)
                put(table, 1, row, rows, parts, second, needed)
                put(table, 2, row, rows, parts, far, needed)
        unit = tl.exp(far)
        rest = tl.where(needed, _log_rest(first, far, flat, classes, rest), rest)
        weight = tl.where(needed, first * unit, weight)
        product = tl.where(needed, second * tl.where(flat, DOWN, unit * unit), product)
    if stage != SUMS:
        tl.store(mass + row, weight, mask=real)
        tl.store(mass_squares + row, product, mask=real)
        if log_rest is not None:
            tl.store(log_rest + row, rest, mask=real)
