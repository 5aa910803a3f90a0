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

import torch
from torch import Tensor

from ..core.dtypes import constant, to_wide
from ..core.martingale import (
    MartingalePath,
    MartingaleState,
    count_valid,
    empty_martingale,  # noqa: F401  the first state of `update_martingale`
    grow_wealth,
    log_bets,
)

# The number of bins, and what a sample counts less with each later one, of the histograms that `histogram_bets` keeps.
HISTOGRAMS = ((10, 0.97), (40, 0.99))
BINS = max(bins for bins, _ in HISTOGRAMS)
# What each bin counts before the first sample.
PRIOR = 0.5
# The errors that `risk_evidence` bets on, as multiples of the one it bets against. Two priors of Beta were slower for
# errors of two or three times that one, and no faster above.
RATIOS = (1.5, 2.0, 3.0, 5.0, 10.0)


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
