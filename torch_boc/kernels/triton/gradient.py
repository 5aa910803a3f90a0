"""The gradient of the logits as Triton kernels; `core/row_sums.py` has the formulas.

Every row is read once, and its gradient is written once. This module needs Triton, and is imported when the first
kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

from .common import (
    DOWN,
    NUMBERS,
    UP,
    aligned,
    along,
    count_of,
    is_inside,
    is_row,
    lead_over,
    load_block,
    odds_and_losses,
    start_of,
)


@triton.jit
def _spread(odds, mass, on_mass, on_mass_squares, classes, dtype: tl.constexpr):
    """What the gradients of the masses ask of the classes of a row; `core/row_sums.py` says why all is divided first.

    Whether the row is flat; one over its mass if it is; the logarithm of the mass if it is not, and a factor for the
    rounding of that; and both gradients times the mass and its square. All is 0 where there is no mass.
    """
    flat = odds > (classes - 1) * 0.5
    nothing = mass < 2.2250738585072014e-308
    some = tl.where(nothing, 1.0, mass)
    log_mass = tl.log(some)
    near = log_mass.to(dtype)
    unit = (1.0 / some).to(dtype)
    first = tl.where(nothing, 0.0, on_mass * some).to(dtype)
    second = tl.where(nothing, 0.0, on_mass_squares * some * some).to(dtype)
    return flat, unit, near, (1.0 - (log_mass - near)).to(dtype), first, second


@triton.jit
def _pull_of_spread(below, u, loses, flat, unit, log_mass, factor, on_mass, on_mass_squares, some_flat, all_flat):
    """The part of the gradient that comes from the masses; few blocks have flat rows and others."""
    pull = tl.zeros_like(below)
    if all_flat == 0:
        share = tl.exp(below - log_mass) * factor
        pull = share * (on_mass + on_mass_squares * (share * (1.0 - loses) * (2.0 - loses)))
    if some_flat:
        lead = lead_over(below)
        wins = lead / (2.0 - lead)
        pull = tl.where(flat, -(u * unit) * (on_mass + on_mass_squares * (wins * unit * (2.0 + wins))), pull)
    return pull


@triton.jit
def _pull(
    below, rival, on_odds, on_squares, on_entropy_sum, on_margin, spread, extras: tl.constexpr, fast: tl.constexpr
):  # fmt: skip
    """The gradient of each rival's logit from those of the sums, 0 where it is no rival; `spread` may be None."""
    scaled, loses, finite = odds_and_losses(below, fast)
    u = scaled * DOWN
    # d(u) = u and d(u^2/(1+u)) = u w (2 - w) with w = u/(1+u); the gradient of Q comes scaled down until it has met w.
    each = on_odds + (on_squares * loses) * (2.0 * UP - UP * loses)
    if extras:
        each -= on_entropy_sum * (1.0 + finite)
        pull = u * each - on_margin
    else:
        pull = u * each
    if spread is not None:
        pull += _pull_of_spread(below, u, loses, *spread)
    return tl.where(rival, pull, 0.0)


@triton.jit(do_not_specialize=NUMBERS)
def short_gradient(
    logits, prediction, top, odds, mass,
    on_top, on_odds, on_squares, on_mass, on_mass_squares, on_entropy_sum, on_margin, gradient,
    rows, classes, inner, jump, stride, step,
    bits: tl.constexpr, dtype: tl.constexpr, fast: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """The gradient of `height` whole rows per program; what pulls on the rivals pushes the top.

    What is loaded for rows beyond the last is any number: nothing of it is stored.
    """
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    column = tl.arange(0, width)[None, :]
    real, classes = is_row(row, rows, stride, bits), count_of(classes, stride, bits)
    start = start_of(row, rows, inner, jump, stride, bits)[:, None]
    inside = real[:, None] & (column < classes)
    place = tl.load(prediction + row, mask=real).to(tl.int32)[:, None]
    best = tl.load(top + row, mask=real)[:, None]
    pull_odds = tl.load(on_odds + row, mask=real)[:, None] + (best - best)  # NaN for an undefined row
    pull_squares = (tl.load(on_squares + row, mask=real)[:, None] * DOWN).to(dtype)
    pull_entropy_sum, pull_margin = pull_odds, pull_odds
    if on_entropy_sum is not None:
        pull_entropy_sum = tl.load(on_entropy_sum + row, mask=real)[:, None]
        pull_margin = tl.load(on_margin + row, mask=real)[:, None]
    spread = None
    if on_mass is not None:
        weight = tl.load(odds + row, mask=real)[:, None]
        sum_of_row = tl.load(mass + row, mask=real)[:, None]
        first = tl.load(on_mass + row, mask=real)[:, None]
        second = tl.load(on_mass_squares + row, mask=real)[:, None]
        spread = _spread(weight, sum_of_row, first, second, classes, dtype)
        flat = tl.sum((spread[0] & real[:, None]).to(tl.int32))
        spread = spread + (flat > 0, flat == tl.sum(real.to(tl.int32)))  # noqa: RUF005 (no Python)
    z = tl.load(logits + start + along(column, step, bits), mask=inside, other=-float("inf")).to(dtype)
    below, rival = z - best, inside & (column != place)
    extras: tl.constexpr = on_entropy_sum is not None
    pull = _pull(below, rival, pull_odds, pull_squares, pull_entropy_sum, pull_margin, spread, extras, fast)
    push = tl.load(on_top + row, mask=real) - tl.sum(pull, 1)
    tl.store(gradient + row[:, None] * classes + column, tl.where(column == place, push[:, None], pull), mask=inside)


@triton.jit(do_not_specialize=NUMBERS)
def long_gradient(
    logits, prediction, top, odds, mass,
    on_top, on_odds, on_squares, on_mass, on_mass_squares, on_entropy_sum, on_margin, gradient,
    rows, classes, inner, jump, stride, step,
    bits: tl.constexpr, dtype: tl.constexpr, fast: tl.constexpr, group: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """The gradient of one row per program, `width` classes at a time; that of the top comes last."""
    row = tl.program_id(0).to(tl.int64)
    begin, first, end = aligned(start_of(row, rows, inner, jump, stride, bits), classes, step)
    logits += begin
    gradient += row * classes - first
    place, best = tl.load(prediction + row).to(tl.int32) + first, tl.load(top + row)
    pull_odds = tl.load(on_odds + row) + (best - best)
    pull_squares = (tl.load(on_squares + row) * DOWN).to(dtype)
    pull_entropy_sum, pull_margin = pull_odds, pull_odds
    if on_entropy_sum is not None:
        pull_entropy_sum, pull_margin = tl.load(on_entropy_sum + row), tl.load(on_margin + row)
    spread = None
    if on_mass is not None:
        ones, squares = tl.load(on_mass + row), tl.load(on_mass_squares + row)
        spread = _spread(tl.load(odds + row), tl.load(mass + row), ones, squares, classes, dtype)
        spread = spread + (spread[0], spread[0])  # noqa: RUF005
    extras: tl.constexpr = on_entropy_sum is not None
    pulls = tl.zeros([width], dtype)
    for start in range(0, end, width):
        below = load_block(logits, start, first, end, place, step, dtype, width) - best
        rival = is_inside(start, first, end, place, width)
        pull = _pull(below, rival, pull_odds, pull_squares, pull_entropy_sum, pull_margin, spread, extras, fast)
        tl.store(gradient + start + tl.arange(0, width), pull, mask=rival)
        pulls += pull
    tl.store(gradient + place, tl.load(on_top + row) - tl.sum(pulls, 0))
