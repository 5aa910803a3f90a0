"""Bets on a stream of p-values as a Triton kernel; `functional/martingale.py` says what is computed, and why.

One program goes over the stream in blocks of samples. Within a block, every strategy is a column, and scans along the
samples give the wealth after each; from block to block, the state is carried in registers. Logarithms are to base 2,
and a sum is a number times a power of 2: to add two of them takes no exponential. This module needs Triton, and is
imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

from ...core import martingale as formulas

NEAREST = tl.constexpr(formulas.NEAREST)
EXPONENTS = tl.constexpr(len(formulas.EXPONENTS))
STRATEGIES = tl.constexpr(2 * len(formulas.EXPONENTS))
COLUMNS = tl.constexpr(16)  # a power of 2
LOWEST = tl.constexpr(-1e6)  # the logarithm of nothing: that of a share that has begun is far above
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _scaled(x, power):
    """Multiply by 2^power, for a whole number `power` of at most 0; by 0 below 2^-1022."""
    return x * ((tl.maximum(power, -1023) + 1023).to(tl.int64) << 52).to(tl.float64, bitcast=True)


@triton.jit
def _join(top, begin, power, total, later_top, later_begin, later_power, later_total):
    """Two stretches of samples as one: the larger top, the later of equal ones, with its begin; and the sum of both."""
    most = tl.maximum(power, later_power)
    both = _scaled(total, power - most) + _scaled(later_total, later_power - most)
    return tl.maximum(top, later_top), tl.where(later_top >= top, later_begin, begin), most, both


@triton.jit
def _split(x):
    """2^x as a power of 2 and a factor."""
    power = tl.floor(x)
    return power.to(tl.int32), tl.exp2(x - power)


@triton.jit
def _log_bets(p, valid, exponents, column):
    """The logarithms of the betting functions to base 2; 0 for samples that do not count."""
    known = tl.where(valid, p, 0.5)
    low, high = tl.log2(tl.maximum(known, NEAREST)), tl.log2(tl.maximum(1.0 - known, NEAREST))
    exponent = tl.load(exponents + column % EXPONENTS)
    side = tl.where(column < EXPONENTS, low[:, None], high[:, None])
    return tl.where(valid[:, None], tl.log2(exponent) + (exponent - 1.0) * side, 0.0)


@triton.jit
def _reserve(number):
    return 1.0 / tl.log2(number.to(tl.float64) + 2.0)


@triton.jit
def _last(x, block: tl.constexpr):
    """The last row of a block."""
    return tl.sum(tl.where((tl.arange(0, block) == block - 1)[:, None], x, 0), 0, keep_dims=True)


@triton.jit
def _add(total, which, x):
    """Add the chosen ones of a block to a number in memory; one thread reads and writes it."""
    tl.store(total, tl.load(total) + tl.sum(tl.where(which, x, 0), 0))


@triton.jit(do_not_specialize=["size", "bound"])
def martingale(
    p, number, mixed, mixed_begin, exponents, evidences,
    log_shares, rise, begin, seen, skipped, evidence, peak, alarm_at, began, pairs,
    size, bound, endless: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    """`core.martingale.place_bets`, with the tensors of a `StreamState` in its order and the bits of the bound."""
    row, column = tl.arange(0, block), tl.arange(0, COLUMNS)[None, :]
    real = column < STRATEGIES
    level = bound.to(tl.int64).to(tl.float64, bitcast=True)
    share = tl.maximum(tl.load(log_shares + column, mask=real, other=0.0) * LOG2_E, LOWEST)
    grown = tl.load(rise + column, mask=real, other=0.0) * LOG2_E
    origin = tl.load(begin + column, mask=real, other=0)
    highest, last_p = tl.load(peak), tl.load(pairs)
    for start in range(0, size, block):
        place = start + row
        inside = place < size
        value = tl.load(p + place, mask=inside, other=float("nan"))
        before, after = tl.load(number + place, mask=inside, other=0), tl.load(number + place + 1, mask=inside, other=0)
        gain = _log_bets(value, value == value, exponents, column)
        total = tl.cumsum(gain, 0)
        if endless:
            reserve = tl.zeros([block], tl.float64)
            begins = (after - before).to(tl.float64)
        else:
            reserve = _reserve(after)  # what has not begun to bet
            begins = tl.maximum(_reserve(before) - reserve, 0.0)
        # What begins before a sample is larger by the inverse of all earlier bets, and then every bet is won by all.
        top = tl.where(inside[:, None], gain - total, LOWEST)
        power, factor = _split(top)
        first = before[:, None] + tl.zeros([block, COLUMNS], tl.int64)
        top, first, power, begun = tl.associative_scan((top, first, power, begins[:, None] * factor), 0, _join)
        carried, factor = _split(share)
        best, first, power, begun = _join(grown, origin, carried, factor, top, first, power, begun)
        levels, rises = power.to(tl.float64) + total, best + total
        share = tl.maximum(_last(levels, block) + tl.log2(_last(begun, block)), LOWEST)
        grown, origin = _last(rises, block), _last(first, block)
        # The evidence after each sample, and where a change probably began.
        most = tl.maximum(tl.max(tl.where(real, levels, 0.0), 1), 0.0)
        wealth = tl.sum(tl.where(real, begun * tl.exp2(levels - most[:, None]), 0.0), 1) / STRATEGIES
        path = (most + tl.log2(wealth + reserve * tl.exp2(-most))) * LN_2
        chosen = tl.argmax(tl.where(real, rises, LOWEST), 1)
        origins = tl.sum(tl.where(column == chosen[:, None], first, 0), 1)
        if mixed is not None:
            other = tl.load(mixed + place, mask=inside, other=0.0)
            origins = tl.where(other > path, tl.load(mixed_begin + place, mask=inside, other=0), origins)
            most = tl.maximum(tl.maximum(path, other), LOWEST)
            path = most + tl.log((tl.exp(path - most) + tl.exp(other - most)) * 0.5)
        tl.store(evidences + place, path, mask=inside)
        tl.store(evidence + row * 0, path, mask=place == size - 1)
        # The first alarm, until which both of its numbers are 0, and the pairs of neighbours until then.
        crossing = tl.min(tl.where(inside & (path >= level), row, block), 0)
        crossing = tl.where(highest < level, crossing, -1)
        _add(alarm_at, row == crossing, after)
        _add(began, row == crossing, origins)
        neighbour = tl.load(p + place - 1, mask=inside & (place > 0), other=last_p)
        both = value + neighbour
        counts = (row <= crossing) & (both == both)
        _add(pairs + 1, counts, tl.full([block], 1.0, tl.float64))
        _add(pairs + 2, counts, both)
        _add(pairs + 3, counts, both * both)
        _add(pairs + 4, counts, value * neighbour)
        highest = tl.maximum(highest, tl.max(tl.where(inside, path, -float("inf")), 0))
    tl.store(log_shares + column, tl.where(share > LOWEST, share * LN_2, -float("inf")), mask=real)
    tl.store(rise + column, grown * LN_2, mask=real)
    tl.store(begin + column, origin, mask=real)
    known, until_now = tl.load(number), tl.load(number + size)
    tl.store(seen, until_now)
    tl.store(skipped, tl.load(skipped) + size - (until_now - known))
    tl.store(peak, highest)
    tl.store(pairs, tl.load(p + size - 1, mask=size > 0, other=last_p))
