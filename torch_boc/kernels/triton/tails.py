"""The binomial log-tail as an element-wise Triton kernel; `core/tails.py` says what is computed, and why.

Each thread computes one tail: two inputs are read once, two results are written once, and no table is read. The mass
is computed from deviances and Stirling errors (Loader, 2000) for any number of trials. The continued fraction is kept
as a numerator and a denominator, so that a step needs no division. This module needs Triton, and is imported when the
first kernel is launched.

The compiler must not fuse a product with a sum, because W* is defined as the rounding of a rounded product.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

from ...core.tails import STIRLING_ERRORS as ERRORS

TINY = tl.constexpr(2.0**-1022)  # the smallest normal number
EXPONENT = tl.constexpr(0x7FF << 52)  # where float64 keeps its exponent
ROUND = tl.constexpr(1.5 * 2.0**52)  # what is added to this is rounded to a whole number, half to even
# Seven constants, because Triton 3.3 cannot index one that is a tuple.
OF_1, OF_2, OF_3, OF_4, OF_5, OF_6, OF_7 = (tl.constexpr(error) for error in ERRORS)
PER_TURN = tl.constexpr(0.15915494309189535)  # 1 / (2 pi)


@triton.jit
def _stirling_error(n, inverse):
    """lgamma(n + 1) minus Stirling's formula, for n = 1, 2, ...: an asymptotic series, and below 8 the exact values."""
    square = inverse * inverse
    later = 1 / 1680 - square * (1 / 1188 - square * (691 / 360360 - square * (1 / 156)))
    error = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * later)))
    error = tl.where(n == 1.0, OF_1, tl.where(n == 2.0, OF_2, error))
    error = tl.where(n == 3.0, OF_3, tl.where(n == 4.0, OF_4, error))
    error = tl.where(n == 5.0, OF_5, tl.where(n == 6.0, OF_6, error))
    return tl.where(n == 7.0, OF_7, error)


@triton.jit
def _log_ratio(ratio, change):
    """log(ratio), where ratio = 1 + change. Near 1, `change` has the digits that the rounding of the ratio lost."""
    return tl.log(ratio) + tl.where(tl.abs(change) < 0.5, change - (ratio - 1.0), 0.0)


@triton.jit
def _fraction(count, trials, chance, steps):
    """The continued fraction, from its last step back to the first, as a numerator and a denominator.

    A step is b + a / (x / y) = (b x + a y) / x. In each step the numbers can grow by the square of the count, but only
    their quotient matters. Therefore both are scaled by the power of 2 that brings the numerator to between 2 and 4.
    The exponent of this power is the exponent of the numerator with every bit inverted.
    """
    step = steps.to(tl.float64)
    base = count + 2.0 * step
    above, below = base, tl.zeros_like(base) + 1.0
    for _ in range(steps):
        even = ((trials + 1.0 - count) - step) * step * chance
        odd = ((1.0 - count) - step) * (trials + step) * chance
        middle = tl.fma(base - 1.0, above, even * below)
        base -= 2.0
        above, below = tl.fma(base, middle, odd * above), middle
        scale = (~above.to(tl.int64, bitcast=True) & EXPONENT).to(tl.float64, bitcast=True)
        above, below = above * scale, below * scale
        step -= 1.0
    return above, below


@triton.jit
def _log_multiple(ratio, count, trials, chance, other):
    """The log of Pr{X = w} times `ratio`."""
    rest = trials - count
    inner = rest > 0.0  # Stirling's formula does not hold at 0: the mass of k wins is chance^k
    per_count, per_rest = 1.0 / count, 1.0 / tl.where(inner, rest, 1.0)
    excess = tl.fma(-trials, chance, count)
    log_hits = _log_ratio(trials * chance * per_count, -excess * per_count)
    log_misses = _log_ratio(trials * other * per_rest, excess * per_rest)
    error = _stirling_error(trials, 1.0 / trials) - _stirling_error(count, per_count) - _stirling_error(rest, per_rest)
    square = tl.where(inner, (trials * per_count) * (PER_TURN * per_rest), 1.0) * ratio * ratio
    return tl.where(inner, error, 0.0) + 0.5 * tl.log(square) + count * log_hits + rest * log_misses


@triton.jit
def log_tail_and_slope(wins, trials, odds, steps):
    """The log tail and its derivative in `odds`, for whole `wins`."""
    real, sure = odds >= 0.0, odds == 0.0
    odds = tl.where(odds < TINY, TINY, odds)  # the derivative has a finite limit at 0, but would be 0/0 there
    win = 1.0 / (1.0 + odds)
    lose = tl.where(odds < 1.0, odds * win, 1.0 - win)
    near = win * (trials + 3.0) >= wins + 1.0  # the near side: Pr{X >= w} = 1 - Pr{k - X >= k - w + 1}
    count = tl.where(near, (trials + 1.0) - wins, wins)
    count = tl.where(count < 1.0, 1.0, tl.where(count > trials, trials, count))  # a NaN stays NaN
    chance, other = tl.where(near, lose, win), tl.where(near, win, lose)
    above, below = _fraction(count, trials, chance, steps)
    log_sum = _log_multiple(other * count * (below / above), count, trials, chance, other)
    missing = tl.where(near, tl.exp(log_sum), 0.0)
    left = 1.0 - missing
    log_left = tl.log(left) - ((left - 1.0) + missing) / left  # log1p(-missing)
    # -w pmf(w) / ((1 + R) tail): the fraction stands for all but the tails and R. R comes last, because it may be tiny.
    slope = -(above / below) * tl.where(near, missing / left, 1.0) / odds
    certain, never = wins <= 0.0, wins > trials
    log_tail = tl.where(certain | (sure & (wins <= trials)), 0.0, tl.where(near, log_left, log_sum))
    log_tail = tl.where(never, -float("inf"), log_tail)
    slope = tl.where(certain | never, 0.0, slope)
    return tl.where(real, log_tail, float("nan")), tl.where(real, slope, float("nan"))


@triton.jit(do_not_specialize=["size", "trials", "steps"])
def log_tails(wins, odds, log_tail, slope, size, trials, steps, block: tl.constexpr):
    """`block` tails per program."""
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = place < size
    count = tl.load(wins + place, mask=inside, other=0.0)
    against = tl.load(odds + place, mask=inside, other=1.0)
    value, change = log_tail_and_slope(count, trials.to(tl.float64), against, steps)
    tl.store(log_tail + place, value, mask=inside)
    tl.store(slope + place, change, mask=inside)
