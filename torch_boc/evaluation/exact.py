"""Intervals for cases in which the bootstrap fails: few samples are on the wrong side, or none.

If a share is 0, it is 0 in every resample, so its bootstrap interval has no width. But 200 samples do not show that the
true share is 0. These intervals are those of Clopper and Pearson for a binomial count. The AUROC is a mean over pairs
of samples, of which min(N, M) have no sample in common. It varies no more than a share of that many independent pairs
(Hoeffding 1963).
"""

import math

import torch
from torch import Tensor

from .._optional import require

# With fewer independent pairs, or fewer samples, on one side than this, the interval of the bootstrap is too narrow.
FEW_PAIRS = 2
FEW_ON_A_SIDE = 10
Interval = tuple[float, float]


def binomial_interval(successes: float, total: float) -> Interval:
    """The 95 % interval of Clopper and Pearson for the share `successes / total`; both may be fractions.

    >>> [round(end, 4) for end in binomial_interval(0, 200)]
    [0.0, 0.0183]
    """
    special, failures = require("scipy", "special", purpose="intervals of shares need").special, total - successes
    low = float(special.betaincinv(successes, failures + 1, 0.025)) if successes > 0 else 0.0
    return low, float(special.betaincinv(successes + 1, failures, 0.975)) if failures > 0 else 1.0


def widest(*intervals: Interval) -> Interval:
    """The interval from the lowest end to the highest end; NaN if an interval is NaN."""
    ends = list(zip(*intervals, strict=True))
    return (min(ends[0]), max(ends[1])) if not any(map(math.isnan, ends[0])) else (math.nan, math.nan)


def auroc_interval(bootstrap: Interval, auroc: float, pairs: int) -> Interval:
    """The interval of an AUROC. If few pairs are on one side, it includes the binomial interval.

    Args:
        bootstrap: the interval by resampling.
        auroc: the estimate.
        pairs: the number of pairs that have no sample in common.
    """
    if not min(auroc, 1 - auroc) * pairs < FEW_PAIRS:
        return bootstrap
    return widest(bootstrap, binomial_interval(auroc * pairs, pairs))


def paired_interval(bootstrap: Interval, gained: int, lost: int, total: int) -> Interval:
    """The interval of the share of gained samples minus the share of lost samples, made wider if few are of one kind.

    Two intervals widen it. One knows how many samples changed: `gained` is binomial among them, so that the interval
    excludes 0 only if the exact test of McNemar rejects. The other does not: the changes of both shares are added as
    the root of the sum of squares.

    Args:
        bootstrap: the interval by resampling, which is the result if there are enough samples of both kinds.
        gained: the number of samples on which only the first model is right.
        lost: the number of samples on which only the second model is right.
        total: the number of all samples.

    >>> [round(end, 4) for end in paired_interval((0.002, 0.01), 5, 0, 1000)]
    [-0.0002, 0.0116]
    """
    if not min(gained, lost) < FEW_ON_A_SIDE:
        return bootstrap
    changed, difference = gained + lost, (gained - lost) / total
    low, high = ((2 * end - 1) * changed / total for end in binomial_interval(gained, changed))
    up, down = (binomial_interval(count, total) for count in (gained, lost))
    least = difference - math.hypot(gained / total - up[0], down[1] - lost / total)
    most = difference + math.hypot(up[1] - gained / total, lost / total - down[0])
    return widest(bootstrap, (low, high), (max(-1.0, least), min(1.0, most)))


def fpr_interval(bootstrap: Interval, fpr: float, positive: Tensor, negative: Tensor, tpr: float) -> Interval:
    """The interval of a false positive rate, made wider if few samples are on one side of the threshold.

    Two things vary independently: the threshold, which lies between two order statistics of `positive`, and the rate
    above the threshold, which is binomial. The changes of the rate by both are added as the root of the sum of squares.

    Args:
        bootstrap: the interval by resampling, which is the result if there are enough samples on both sides.
        fpr: the estimate.
        positive: the scores of the test set, in rising order.
        negative: the scores of the OOD set, in rising order.
        tpr: the share of `positive` above the threshold.
    """
    if not min(fpr, 1 - fpr) * len(negative) < FEW_ON_A_SIDE:
        return bootstrap
    ends = [1 - torch.searchsorted(negative, t).item() / len(negative) for t in _thresholds(positive, tpr)]
    rate = binomial_interval(round(fpr * len(negative)), len(negative))
    low = fpr - math.hypot(fpr - rate[0], max(0.0, fpr - ends[1]))
    high = fpr + math.hypot(rate[1] - fpr, max(0.0, ends[0] - fpr))
    return widest(bootstrap, (max(0.0, low), min(1.0, high)))


def aupr_interval(bootstrap: Interval, auroc: Interval, ratio: float) -> Interval:
    """The interval of the average precision, widened to include what the interval of the AUROC allows.

    Let f(r) be the share of negatives above the threshold of recall r. Then the precision is r / (r + ratio f), and the
    AUROC is 1 - mean f. The function f never falls. For a given AUROC, the mean precision is highest if f is first 0
    and then 1. It is lowest, up to a few thousandths, if f is constant.

    Args:
        bootstrap: the interval by resampling.
        auroc: the interval of the AUROC.
        ratio: the number of negatives divided by the number of positives.
    """
    lost, first = ratio * (1 - auroc[0]), auroc[1]
    low = 1 - lost * math.log1p(1 / lost) if lost > 0 else 1.0
    return widest(bootstrap, (low, 1 - ratio * math.log((1 + ratio) / (first + ratio))))


def _thresholds(positive: Tensor, tpr: float) -> list[Tensor]:
    """The lower and the upper end of the 95 % interval of the threshold; both are scores, or infinite."""
    special, n = require("scipy", "special", purpose="intervals of shares need").special, len(positive)
    first, last = (math.ceil(special.bdtrik(level, n, 1 - tpr)) for level in (0.025, 0.975))
    infinity = torch.tensor(math.inf, dtype=torch.float64)
    return [
        -infinity if first < 1 else positive[first - 1],
        infinity if last >= n else positive[last],
    ]
