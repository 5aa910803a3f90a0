"""Betting martingales by torch's operations; `functional/martingale.py` says what is computed, and why."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .dtypes import constant, to_wide

# Exponents of the betting functions f(p) = e p^(e - 1): for p-values near 0, and, with 1 - p, for p-values near 1.
# Those above 1 win on p-values that are moderately high, or low with 1 - p.
EXPONENTS = (0.55, 0.7, 0.85, 1.5, 3.0, 6.0)
# P-values are clamped to this distance from 0 and 1, because no bet may be infinite. It changes the mean of a bet by
# less than 1e-18.
NEAREST = 2.0**-60


class MartingaleState(NamedTuple):
    """The state of the bets. All are float64 (float32 on MPS), except `begin`, which is int64.

    Attributes:
        log_shares: (S,), for each strategy the logarithm of the wealth that has begun to bet, times S.
        rise: (S,), how much the logarithm of a bet has grown since `begin`.
        begin: (S,), the number of samples before the one at which betting would have brought most until now.
    """

    log_shares: Tensor
    rise: Tensor
    begin: Tensor


class MartingalePath(NamedTuple):
    """What a batch of bets gives.

    Attributes:
        evidence: (N,), the logarithm of the wealth after each sample.
        begin: (N,), after each sample, the number of samples before the one at which a change probably began.
        state: the state after the batch.
    """

    evidence: Tensor
    begin: Tensor
    state: MartingaleState


class StreamState(NamedTuple):
    """The state of the bets on a stream, and what a monitor knows of it; counts are int64.

    The evidence and its peak are logarithms of the wealth. `alarm_at` and `began`, the number of samples before the
    likely change, are 0 until the alarm. `pairs` are the last p-value and, over pairs of neighbours until the alarm,
    their number, and the sums of their sums, of the squares of these, and of their products.
    """

    log_shares: Tensor
    rise: Tensor
    begin: Tensor
    seen: Tensor
    skipped: Tensor
    evidence: Tensor
    peak: Tensor
    alarm_at: Tensor
    began: Tensor
    pairs: Tensor


def empty_martingale(strategies: int = 2 * len(EXPONENTS)) -> MartingaleState:
    """The state before the first sample."""
    nothing = torch.zeros(strategies, dtype=torch.float64)
    return MartingaleState(nothing - math.inf, nothing.clone(), torch.zeros(strategies, dtype=torch.int64))


def empty_stream() -> StreamState:
    """The state before the first sample."""
    counts, numbers = torch.zeros(4, dtype=torch.int64), torch.zeros(2, dtype=torch.float64)
    (seen, skipped, alarm_at, began), (evidence, peak) = ([x.clone() for x in y] for y in (counts, numbers))
    pairs = torch.tensor([math.nan, 0, 0, 0, 0], dtype=torch.float64)
    return StreamState(*empty_martingale(), seen, skipped, evidence, peak, alarm_at, began, pairs)


def log_bets(p: Tensor) -> Tensor:
    """The logarithms of the betting functions, of shape (N, S), for p-values of shape (N,); 0 for NaN.

    >>> log_bets(torch.tensor([0.01, 0.5]))[:, 0].exp()  # 0.55 p^-0.45
    tensor([4.3688, 0.7513], dtype=torch.float64)
    """
    wide = to_wide(p)
    power, factor = constant(tuple(x - 1.0 for x in EXPONENTS), wide), constant(tuple(map(math.log, EXPONENTS)), wide)
    both = torch.stack([wide, 1.0 - wide], -1).clamp_min_(NEAREST).log_()
    return torch.addcmul(factor, power, both.unsqueeze(-1)).flatten(-2).nan_to_num_(0.0)


def count_valid(valid: Tensor, seen: Tensor) -> Tensor:
    """How many samples of a stream count: (N + 1,), before a batch, which are `seen`, and after each sample of it."""
    return torch.cat([seen.reshape(1), valid]).cumsum(0)


def grow_wealth(gain: Tensor, state: MartingaleState, number: Tensor, endless: bool) -> MartingalePath:
    """The path of the wealth, from the logarithms `gain` of the bets, of shape (N, S), and from `count_valid`.

    A sample that does not count has a gain of 0. No wealth begins to bet with it, because the number does not grow.
    """
    total = torch.nn.functional.pad(gain, (0, 0, 1, 0)).cumsum(0)
    before, wide = total[:-1], to_wide(number)
    reserve = torch.log2(wide + 2.0).reciprocal_()  # what has not begun to bet
    log_share = (wide if endless else -reserve).diff().clamp_min_(0.0).log_()  # rounding may order two wrongly
    begun = torch.cat([state.log_shares.unsqueeze(0), log_share.unsqueeze(-1) - before]).logcumsumexp(0)
    shares = total + begun
    evidence = shares[1:].logsumexp(-1) - math.log(gain.shape[-1])
    if not endless:
        evidence = torch.logaddexp(reserve[1:].log(), evidence)
    # Before the batch and after each sample: the largest sum of gains until now, and where it begins.
    best, index = torch.cat([state.rise.unsqueeze(0), -before]).cummax(0)
    rise = best + total
    begin = torch.cat([state.begin.unsqueeze(0), number[:-1, None].expand_as(before)]).gather(0, index)
    chosen = begin[1:].gather(-1, rise[1:].argmax(-1, keepdim=True)).squeeze(-1)
    return MartingalePath(evidence, chosen, MartingaleState(shares[-1], rise[-1], begin[-1]))


def place_bets(
    p: Tensor, number: Tensor, mixed: Sequence[Tensor], bound: float, endless: bool, *states: Tensor
) -> Tensor:
    """Bet on the next p-values of a stream, write its state in place, and return the evidence after each.

    Args:
        p: (N,), in the order of the stream; NaN does not count.
        number: (N + 1,), from `count_valid`.
        mixed: `evidence` and `begin` of a second martingale, half of the wealth; empty without one.
        bound: the evidence from which on there is an alarm.
        endless: as for `grow_wealth`.
        states: the tensors of a `StreamState`.
    """
    old = StreamState(*states)
    evidence, begin, new = grow_wealth(log_bets(p), MartingaleState(*old[:3]), number, endless)
    if mixed:
        other, other_begin = mixed
        begin = torch.where(other > evidence, other_begin, begin)
        evidence = torch.logaddexp(evidence, other) - math.log(2.0)
    until_now = torch.cat([old.peak.reshape(1), old.evidence.reshape(1), evidence])
    peaks = until_now.cummax(0).values[1:]
    # Before the batch and after each sample: whether there was no alarm until then. The first alarm is kept.
    quiet = peaks < bound
    first = quiet.sum() % len(quiet)  # 0 if it came before the batch, and if there is none: then both numbers are 0
    of_first = ((old.alarm_at, number[1:]), (old.began, begin))
    alarm_at, began = (torch.cat([kept.reshape(1), each]).take(first) for kept, each in of_first)
    all_p = torch.cat([old.pairs[:1], p.to(old.pairs.dtype)])
    before, here = all_p[:-1], all_p[1:]
    total, product = before + here, before * here
    both = quiet[:-1] & (total == total)
    sums = torch.where(both, torch.stack([both, total, total * total, product]), 0.0).sum(1)
    pairs = torch.cat([all_p[-1:], old.pairs[1:] + sums])
    skipped = old.skipped + (len(p) + old.seen - number[-1])
    after = StreamState(*new, number[-1], skipped, until_now[-1], peaks[-1], alarm_at, began, pairs)
    torch._foreach_copy_([*old], [*after])
    return evidence
