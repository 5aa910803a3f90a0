"""Columns of numbers of each row, and histograms of scores, as Triton kernels.

`functional/columns.py` and `functional/registry.py` say what each number is; `functional/separation.py`, what the bins
are. This module needs Triton, and is imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

from .quantities import gap_of, log1p, read_coins, read_wide
from .tails import log_p_and_slope

# The numbers that a column can hold. The kernels know them by their place here.
QUANTITIES = (
    "odds", "loss", "concentration", "free_gap", "confidence", "dominance", "gap", "forced_gap", "log_p_value",
    "p_value", "top", "energy", "logit_gap", "entropy", "log_odds",
)  # fmt: skip
DIGIT = tl.constexpr(16)  # more than there are quantities
MAGNITUDE = tl.constexpr(0x7FFFFFFF)  # all bits of a float32 but its sign


@triton.jit
def _quantity(code: tl.constexpr, odds, loss, share, free, top, surprise, margin, rest, log_p, rivals):
    """The number at this place among QUANTITIES."""
    value = odds
    if code == 1:
        value = loss
    elif code == 2:
        value = share
    elif code == 3:
        value = free
    elif code == 4:
        value = 1.0 / (1.0 + odds)
    elif code == 5:
        value = 1.0 - loss
    elif code == 6:
        value = gap_of(odds, loss)
    elif code == 7:
        value = gap_of(odds, loss) - free
    elif code == 8:
        value = log_p
    elif code == 9:
        value = tl.exp(log_p)
    elif code == 10:
        value = top
    elif code == 11:
        value = top + log1p(odds)
    elif code == 12:
        value = margin / rivals.to(tl.float64)
    elif code == 13:
        value = -(log1p(odds) + surprise / (1.0 + odds))
    elif code == 14:
        value = -rest
    return value


@triton.jit
def _read_row(
    top, odds, squares, mass, mass_squares, surprise, margin, log_rest, place, inside, rivals, trials, steps
):  # fmt: skip
    """What every quantity is made of; what is None is not needed."""
    against, lost, share, free = read_coins(odds, squares, mass, mass_squares, place, inside, rivals, False)
    log_p = against
    if trials is not None:  # before anything else is read, which would take registers
        log_p = log_p_and_slope(lost, against, trials, steps)[0]
    high = read_wide(top, place, inside)
    surprised, ahead, rest = high, high, high
    if log_rest is not None:
        rest = read_wide(log_rest, place, inside)
    if surprise is not None:
        surprised, ahead = read_wide(surprise, place, inside), read_wide(margin, place, inside)
    return against, lost, share, free, high, surprised, ahead, rest, log_p


@triton.jit
def _put(
    column, code: tl.constexpr, place, inside, odds, loss, share, free, top, surprise, margin, rest, log_p, rivals
):  # fmt: skip
    if column is not None:
        value = _quantity(code, odds, loss, share, free, top, surprise, margin, rest, log_p, rivals)
        tl.store(column + place, value, mask=inside)


@triton.jit(do_not_specialize=["size", "rivals", "trials", "steps"])
def columns(
    top, odds, squares, mass, mass_squares, surprise, margin, log_rest,
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14,
    size, rivals, trials, steps, block: tl.constexpr
):  # fmt: skip
    """`block` rows per program; each of the columns, in the order of QUANTITIES, may be None."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < size
    r, lost, share, free, high, surprised, ahead, rest, log_p = _read_row(
        top, odds, squares, mass, mass_squares, surprise, margin, log_rest, at, inside, rivals, trials, steps
    )
    _put(c0, 0, at, inside, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals)
    _put(c1, 1, at, inside, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals)
    _put(c2, 2, at, inside, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals)
    _put(c3, 3, at, inside, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals)
    _put(c4, 4, at, inside, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals)
    _put(c5, 5, at, inside, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals)
    _put(c6, 6, at, inside, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals)
    _put(c7, 7, at, inside, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals)
    _put(c8, 8, at, inside, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals)
    _put(c9, 9, at, inside, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals)
    _put(c10, 10, at, inside, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals)
    _put(c11, 11, at, inside, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals)
    _put(c12, 12, at, inside, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals)
    _put(c13, 13, at, inside, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals)
    _put(c14, 14, at, inside, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals)


@triton.jit
def _score_bin(score, shift):
    """`functional.separation.score_bin` without its offset: the leading bits of a float32 in the order of numbers."""
    pattern = tl.where(score == 0.0, 0.0, score).to(tl.float32).to(tl.int32, bitcast=True)
    ordered = tl.where(pattern < 0, pattern ^ MAGNITUDE, pattern)
    return (ordered >> shift).to(tl.int64)


@triton.jit(do_not_specialize=["flags", "size", "rivals", "trials", "steps", "flag_step", "bins", "shift"])
def count_scores(
    top, odds, squares, mass, mass_squares, surprise, margin, log_rest, flags, histogram, invalid,
    size, rivals, trials, steps, flag_step, bins, shift,
    scores: tl.constexpr, codes: tl.constexpr, negative: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    """Count `block` rows per program in the bins of each score: a digit of `codes`, times -1 by a bit of `negative`."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < size
    r, lost, share, free, high, surprised, ahead, rest, log_p = _read_row(
        top, odds, squares, mass, mass_squares, surprise, margin, log_rest, at, inside, rivals, trials, steps
    )
    nan = at < 0
    for i in tl.static_range(scores):
        value = _quantity(
            (codes // DIGIT**i) % DIGIT, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals
        )  # fmt: skip
        nan = nan | (value != value)
    flag = tl.load(flags + at * flag_step, mask=inside, other=0).to(tl.int64)
    counted, one = inside & (nan == 0), tl.full([block], 1, tl.int64)
    for i in tl.static_range(scores):
        value = _quantity(
            (codes // DIGIT**i) % DIGIT, r, lost, share, free, high, surprised, ahead, rest, log_p, rivals
        )  # fmt: skip
        if (negative >> i) % 2 == 1:
            value = -value
        place = (flag * scores + i) * bins + bins // 2 + _score_bin(tl.where(counted, value, 0.0), shift)
        tl.atomic_add(histogram + place, one, mask=counted, sem="relaxed")
    tl.atomic_add(invalid, tl.sum((inside & nan).to(tl.int64), 0), sem="relaxed")
