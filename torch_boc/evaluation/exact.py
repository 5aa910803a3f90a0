"""Bounds that hold where the bootstrap fails: few samples on the wrong side, or none.

A share of 0 does not vary in any resample, and so its interval has no width, though 200 samples do not show that the
share is 0. These bounds count samples as Clopper and Pearson do. The AUROC is a mean over pairs of samples; min(N, M)
of them have no sample in common, and it varies no more than a share of so many independent pairs (Hoeffding 1963).
"""

import math

import torch
from torch import Tensor

from .._optional import require

# Fewer independent pairs on the wrong side than this, or fewer samples: the bootstrap alone is too narrow.
FEW_PAIRS = 2
FEW_ON_A_SIDE = 10
Interval = tuple[float, float]


def binomial_interval(successes: float, trials: float) -> Interval:
    """The 95 % interval of Clopper and Pearson for a share; `successes` may be a fraction.

    >>> [round(end, 4) for end in binomial_interval(0, 200)]
    [0.0, 0.0183]
    """
    special, failures = require("scipy", "special", purpose="intervals of shares need").special, trials - successes
    low = float(special.betaincinv(successes, failures + 1, 0.025)) if successes > 0 else 0.0
    return low, float(special.betaincinv(successes + 1, failures, 0.975)) if failures > 0 else 1.0


def widest(*intervals: Interval) -> Interval:
    """From the lowest end to the highest; NaN if one has it."""
    ends = list(zip(*intervals, strict=True))
    return (min(ends[0]), max(ends[1])) if not any(map(math.isnan, ends[0])) else (math.nan, math.nan)


def auroc_interval(bootstrap: Interval, auroc: float, pairs: int) -> Interval:
    """The interval of an AUROC: that of the bootstrap, and where few pairs are on one side, the binomial one as well.

    Args:
        bootstrap: the interval by resampling.
        auroc: the estimate.
        pairs: how many pairs there are without a sample in common.
    """
    if not min(auroc, 1 - auroc) * pairs < FEW_PAIRS:
        return bootstrap
    return widest(bootstrap, binomial_interval(auroc * pairs, pairs))


def fpr_interval(bootstrap: Interval, fpr: float, positive: Tensor, negative: Tensor, tpr: float) -> Interval:
    """The interval of a false positive rate, where few samples are on one side of the threshold.

    Two things vary independently: the threshold, whose interval is between two order statistics of `positive`, and the
    rate above it, which is binomial. What either moves the rate by is added in squares.

    Args:
        bootstrap: the interval by resampling, kept where there are enough samples on both sides.
        fpr: the estimate.
        positive, negative: the scores in rising order.
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
    """The interval of average precision, widened to what the interval of the AUROC allows.

    With f(r) the share of negatives above the threshold of recall r, the precision is r / (r + ratio f) and the AUROC
    1 - mean f. As f never falls, the mean precision is highest where f is 0 first and then 1, and lowest, to a few
    thousandths, where f is the same everywhere.

    Args:
        bootstrap: the interval by resampling.
        auroc: an interval of the AUROC.
        ratio: negatives for each positive.
    """
    lost, first = ratio * (1 - auroc[0]), auroc[1]
    low = 1 - lost * math.log1p(1 / lost) if lost > 0 else 1.0
    return widest(bootstrap, (low, 1 - ratio * math.log((1 + ratio) / (first + ratio))))


def _thresholds(positive: Tensor, tpr: float) -> list[Tensor]:
    """Two of the scores, in rising order, between which the true threshold lies in 95 % of cases."""
    special, n = require("scipy", "special", purpose="intervals of shares need").special, len(positive)
    first, last = (math.ceil(special.bdtrik(level, n, 1 - tpr)) for level in (0.025, 0.975))
    infinity = positive.new_tensor(math.inf)
    return [-infinity if first < 1 else positive[first - 1], infinity if last >= n else positive[last]]
