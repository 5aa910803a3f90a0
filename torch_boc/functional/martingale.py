"""Betting martingales: sequential tests of exchangeability from p-values, and of an error rate from labels.

If the samples of a stream are exchangeable with the held-out ones, their smoothed p-values are independent and uniform.
Bets on each p-value before it is seen, at fair odds, turn an initial wealth of 1 into a test martingale. It ever
reaches 1/alpha with probability at most alpha, in a stream of any length (Ville's inequality).

The wealth is divided among strategies s, and among the samples t = 1, 2, ... at which a strategy begins. A share that
has begun is multiplied by the betting function f_s(p) of each sample, whose integral over [0, 1] is 1:

    wealth = 1 / log2(n + 2) + mean_s sum_{t <= n} w_t prod_{i = t..n} f_s(p_i)
    w_t = 1 / log2(t + 1) - 1 / log2(t + 2)

The shares w_t fall slowly, so a change after many samples is still detected: one that begins at t = 10,000 needs about
14 more in the logarithm of the wealth than one at the start.

For an endless stream, each sample brings a wealth of 1 instead (Shiryaev and Roberts). After n samples, the bets have
made n of it on average, and so the mean number of samples until it first reaches a number is at least that number:

    wealth = mean_s sum_{t <= n} prod_{i = t..n} f_s(p_i)

The labels of accepted predictions are audited in the same way. Against "at most a share t is wrong", the wealth is the
mean over r of the likelihood ratios of an error of r t and one of t, an e-process. It needs only how many are wrong
among how many, and bounds the error at any time: by the errors against which no wealth has reached 2/alpha
(Waudby-Smith and Ramdas 2024).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.dtypes import constant, to_wide

# Exponents of the betting functions f(p) = e p^(e - 1): for p-values near 0, and, with 1 - p, for p-values near 1.
# Those above 1 win on p-values that are moderately high, or low with 1 - p.
EXPONENTS = (0.55, 0.7, 0.85, 1.5, 3.0, 6.0)
# P-values are clamped to this distance from 0 and 1, because no bet may be infinite. It changes the mean of a bet by
# less than 1e-18.
NEAREST = 2.0**-60
# The number of bins, and what a sample counts less with each later one, of the histograms that `histogram_bets` keeps.
HISTOGRAMS = ((10, 0.97), (40, 0.99))
BINS = max(bins for bins, _ in HISTOGRAMS)
# What each bin counts before the first sample.
PRIOR = 0.5
# The errors that `risk_evidence` bets on, as multiples of the one it bets against. Two priors of Beta were slower for
# errors of two or three times that one, and no faster above.
RATIOS = (1.5, 2.0, 3.0, 5.0, 10.0)


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


def empty_martingale(strategies: int = 2 * len(EXPONENTS)) -> MartingaleState:
    """The state before the first sample."""
    nothing = torch.zeros(strategies, dtype=torch.float64)
    return MartingaleState(nothing - math.inf, nothing.clone(), torch.zeros(strategies, dtype=torch.int64))


def log_bets(p: Tensor) -> Tensor:
    """The logarithms of the betting functions, of shape (N, S), for p-values of shape (N,); 0 for NaN.

    >>> log_bets(torch.tensor([0.01, 0.5]))[:, 0].exp()  # 0.55 p^-0.45
    tensor([4.3688, 0.7513], dtype=torch.float64)
    """
    wide = to_wide(p)
    power, factor = constant(tuple(x - 1.0 for x in EXPONENTS), wide), constant(tuple(map(math.log, EXPONENTS)), wide)
    both = torch.stack([wide, 1.0 - wide], -1).clamp_min_(NEAREST).log_()
    return torch.addcmul(factor, power, both.unsqueeze(-1)).flatten(-2).nan_to_num_(0.0)


def histogram_bets(p: Tensor, histograms: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithms of bets that the p-values fall where those of the last samples fell, and the histograms afterwards.

    They find a change that makes some p-values frequent which are neither low nor high.

    Args:
        p: (N,) p-values in the order of the stream; NaN does not count. An N by N matrix is made.
        histograms: (H, BINS), from the earlier samples, zeros at the start.

    Returns:
        (N, H), 0 for NaN, and (H, BINS).
    """
    valid, wide = p == p, to_wide(p.nan_to_num(0.0))
    number = torch.nn.functional.pad(valid.cumsum(0), (1, 0))  # before each sample, and after all
    bins, discount = (constant(each, wide).unsqueeze(-1) for each in zip(*HISTOGRAMS, strict=True))
    own_bin = torch.minimum(wide * bins, bins - 1.0).long().unsqueeze(-1)
    here = to_wide((own_bin == torch.arange(BINS, device=p.device)) & valid.unsqueeze(-1))
    age = to_wide((number.unsqueeze(-1) - number[1:]).clamp_min(0))
    weight = torch.where(valid.expand(len(number), -1).tril(-1), discount.unsqueeze(-1) ** age, 0.0)
    counts = weight @ here + (discount ** to_wide(number)).unsqueeze(-1) * histograms.unsqueeze(1)
    before = counts[:, :-1]
    share = (before.gather(-1, own_bin).squeeze(-1) + PRIOR) / (before.sum(-1) + bins * PRIOR)
    return torch.where(valid, (bins * share).log(), 0.0).mT, counts[:, -1]


def update_martingale(p: Tensor, state: MartingaleState, seen: Tensor, *, endless: bool = False) -> MartingalePath:
    """Bet on a batch of p-values, one after the other. The result is the same for batches of any size, up to rounding.

    Args:
        p: (N,), smoothed p-values in the order of the stream; no bet is placed on NaN, and it does not count.
        state: that before the batch.
        seen: the number of p-values before the batch, a scalar in int64.
        endless: whether each sample brings a wealth of 1, for an endless stream.

    >>> bets = update_martingale(torch.full((30,), 0.02), empty_martingale(), torch.tensor(0))
    >>> bets.evidence[[0, 9, 29]]
    tensor([ 0.1976, 13.5034, 47.3108], dtype=torch.float64)
    """
    return grow_wealth(log_bets(p), state, count_valid(p == p, seen), endless)


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


def risk_evidence(labels: Tensor, wrong: Tensor, error: float, *, above: bool = True) -> Tensor:
    """The logarithm of the wealth of bets against an error of at most `error`, or of at least that if not `above`.

    Args:
        labels: the number of labelled predictions, of any shape.
        wrong: how many of them are wrong, of that shape.
        error: the error rate under test, in (0, 1).
        above: whether the alternative is a higher error; a lower one otherwise.

    >>> risk_evidence(torch.tensor([100, 100, 200]), torch.tensor([0, 5, 10]), 0.01).exp()
    tensor([2.2224e-01, 2.5132e+01, 1.0778e+03], dtype=torch.float64)
    """
    bad = to_wide(wrong).unsqueeze(-1)
    good, ratio = to_wide(labels).unsqueeze(-1) - bad, constant(RATIOS, bad)
    other = (error * ratio).clamp_max(1.0) if above else error / ratio
    gain = torch.xlogy(bad, other / error) + torch.xlogy(good, (1.0 - other) / (1.0 - error))
    return gain.logsumexp(-1) - math.log(len(RATIOS))


def risk_interval(labels: int, wrong: int, alpha: float) -> tuple[float, float]:
    """The interval that contains the error at all times with probability at least 1 - `alpha`.

    >>> [round(end, 4) for end in risk_interval(1000, 10, 0.05)]
    [0.0032, 0.0227]
    """
    counts, ends = (torch.tensor(labels), torch.tensor(wrong)), []
    for above in (True, False):
        low, high = 0.0, 1.0
        for _ in range(50):  # the evidence is monotone in the error under test
            middle = (low + high) / 2
            excluded = bool(risk_evidence(*counts, middle, above=above) >= math.log(2 / alpha))
            low, high = (middle, high) if excluded == above else (low, middle)
        ends.append(low if above else high)
    return ends[0], ends[1]
