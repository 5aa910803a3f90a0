"""What is known of each row, as helpers for the Triton kernels that tally rows or write columns of them.

All work is in float64. `core/coins.py`, `functional/evidence.py` and `functional/registry.py` have the formulas. This
module needs Triton, and is imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

from .coins import coins_of_sums


@triton.jit
def log1p(x):
    """log(1 + x) of x > -1, with the digits that the rounding of 1 + x loses."""
    total = 1.0 + x
    return tl.log(total) - ((total - 1.0) - x) / total


@triton.jit
def read_wide(pointer, place, inside):
    """Numbers in float64."""
    return tl.load(pointer + place, mask=inside, other=0.0).to(tl.float64)


@triton.jit
def read_coins(odds, second, third, fourth, place, inside, rivals, given: tl.constexpr):
    """Odds, loss, concentration and free gap of each row: as they are if `given`, else from the sums of the row.

    The sums are squares, mass and mass_squares. Without the last two, concentration and free gap are 0.
    """
    against = read_wide(odds, place, inside)
    other = read_wide(second, place, inside)
    if given:
        lost, share, free = other, read_wide(third, place, inside), read_wide(fourth, place, inside)
    elif third is None:
        lost, share, free = coins_of_sums(against, other, None, None, rivals)
    else:
        weight, placed = read_wide(third, place, inside), read_wide(fourth, place, inside)
        lost, share, free = coins_of_sums(against, other, weight, placed, rivals)
    return against, lost, share, free


@triton.jit
def gap_of(odds, loss):
    """The coherence gap."""
    return odds / (1.0 + odds) - loss


@triton.jit
def forced_gap_of(odds, rivals):
    """The part of the gap that the confidence alone forces."""
    others = rivals.to(tl.float64)
    return odds * (others - 1.0) / ((1.0 + odds) * (others + odds))


@triton.jit
def is_finite(x):
    return tl.abs(x) < float("inf")


@triton.jit
def settle(odds, loss, share, free, counted):
    """`functional.evidence.settle`: rows that do not count become sure predictions, and which count, which would."""
    finite = is_finite(odds) & is_finite(loss) & is_finite(share) & is_finite(free)
    valid, invalid = counted & finite, counted & (finite == 0)
    odds, loss = tl.where(valid, odds, 0.0), tl.where(valid, loss, 0.0)
    share, free = tl.where(valid, share, 0.0), tl.where(valid, free, 0.0)
    return odds, loss, share, free, valid, invalid


@triton.jit
def as_place(number, bins):
    """`functional.bins.as_place` of numbers that are not NaN."""
    last = bins.to(tl.float64) - 1.0
    return tl.minimum(tl.maximum(number, 0.0), last).to(tl.int32)


@triton.jit
def counted_rows(target, counted, ignore_index, place, inside):
    """Which rows count."""
    yes = inside
    if counted is not None:
        yes = yes & (tl.load(counted + place, mask=inside, other=0).to(tl.int32) != 0)
    if ignore_index is not None:
        yes = yes & (tl.load(target + place, mask=inside, other=0) != ignore_index)
    return yes
