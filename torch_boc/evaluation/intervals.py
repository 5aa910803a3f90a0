"""Intervals of 95 %: by the bootstrap, on cells instead of samples, and by binomial counts where that fails.

A replicate of the plain bootstrap draws N samples with replacement. Some statistics depend only on how many samples
fall into each of some cells. For these, a replicate needs no samples: its counts are multinomial, with the shares of
the cells as probabilities. A thousand replicates of a million samples then cost a thousand draws of one number for each
cell, and no array has both the samples and the replicates as axes.

The cells are so fine that the variation within a cell hardly adds to the variance of the statistic. The cells also
change the value of the statistic a little, and this is corrected. With T the estimate from the samples themselves and
t the estimate from the cells,

    interval = T + (quantiles of the replicates - t)

limited to the range of the statistic. If the samples are so few that each value has its own cell, then T = t, and this
is the percentile interval of the plain bootstrap.

The bootstrap fails if few samples are on the wrong side, or none. If a share is 0, it is 0 in every resample, so its
interval has no width, but 200 samples do not show that the true share is 0. Such intervals are those of Clopper and
Pearson for a binomial count. The AUROC is a mean over pairs of samples, of which min(N, M) have no sample in common. It
varies no more than a share of that many independent pairs (Hoeffding 1963).
"""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .._optional import require
from .inputs import sorted_by_numpy

Interval = tuple[float, float]
LEVELS = (0.025, 0.975)
UNIT = (0.0, 1.0)
NOWHERE = (math.nan, math.nan)
# How many cells, over several replicates, are computed at once: arrays of 2 MB stay in the cache of the CPU.
CHUNK_ELEMENTS = 2**18
MEAN_CELLS = 1024
# With fewer independent pairs, or fewer samples, on one side than this, the interval of the bootstrap is too narrow.
FEW_PAIRS = 2
FEW_ON_A_SIDE = 10
# If the difference of two models is that of fewer rows than this, its interval is too narrow.
FEW_ROWS = 20


def random_numbers(seed: int, *labels: str) -> Any:
    """A NumPy generator for one purpose, which `labels` name. Other purposes do not change its random numbers."""
    numpy = require("numpy", purpose="the bootstrap needs")
    return numpy.random.default_rng([seed, *map(zlib.crc32, map(str.encode, labels))])


def replicate(
    statistic: Callable[..., Tensor], counts: Sequence[Tensor], replicates: int, numbers: Any
) -> tuple[Tensor, Tensor]:
    """A statistic of cells and its replicates.

    Args:
        statistic: a function of arrays of counts (R, cells) in float64, one for each of `counts`, with result (R, ...).
        counts: the number of samples in each cell, for each set. The sets are drawn independently.
        replicates: the number of replicates, R.
        numbers: a generator from `random_numbers`.

    Returns:
        The statistic of `counts` themselves (...), and of the replicates (R, ...).
    """
    observed = statistic(*[cells.double().unsqueeze(0) for cells in counts])[0]
    size, parts = max(1, CHUNK_ELEMENTS // max(map(len, counts))), []
    for start in range(0, replicates, size):
        drawn = []
        for cells in counts:  # multinomial counts (rows, cells), each row with the same total as `cells`
            total, rows = int(cells.sum()), min(size, replicates - start)
            drawn.append(torch.from_numpy(numbers.multinomial(total, (cells.double() / total).numpy(), rows)).double())
        parts.append(statistic(*drawn))
    return observed, torch.cat(parts)


def bootstrap_interval(estimate: float, observed: Tensor, drawn: Tensor, limits: Interval = UNIT) -> Interval:
    """The 95 % interval of `estimate`, as above. NaN if the estimate is not finite, or if no replicate is.

    Args:
        estimate: the statistic of the samples themselves.
        observed: the statistic of the cells, a scalar, with which the replicates are compared.
        drawn: the replicates (R,). Those that are not finite are left out.
        limits: the range of the statistic.
    """
    finite = drawn[drawn.isfinite()]
    if len(finite) == 0 or not math.isfinite(estimate):
        return NOWHERE
    shift = torch.quantile(finite, finite.new_tensor(LEVELS)) - observed
    low, high = (estimate + shift).clamp(*limits).tolist()
    return low, high


def mean_interval(values: Tensor, replicates: int, numbers: Any, limits: Interval, cells: int = MEAN_CELLS) -> Interval:
    """The interval of the mean of `values`. A cell has neighbours in the order of the values, as many in each cell."""
    rising, cells = sorted_by_numpy(values), min(cells, len(values))
    counts = (torch.arange(cells + 1) * len(rising) // cells).diff()
    means = torch.stack([part.mean() for part in rising.split(counts.tolist())])
    if not bool(means.isfinite().all()):
        return NOWHERE
    drawn = replicate(lambda drawn: drawn @ means / len(rising), [counts], replicates, numbers)
    return bootstrap_interval(float(values.mean()), *drawn, limits)


def with_intervals(values: Mapping[str, float], intervals: Mapping[str, Interval]) -> dict[str, float]:
    """Columns of a table: values under their names, and their intervals under the names with `_low` and `_high`."""
    row: dict[str, float] = {}
    for name, (low, high) in intervals.items():
        row |= {name: values[name], f"{name}_low": low, f"{name}_high": high}
    return row


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
    lows, highs = zip(*intervals, strict=True)
    return NOWHERE if any(map(math.isnan, lows)) else (min(lows), max(highs))


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


def paired_interval(bootstrap: Interval, gained: float, lost: float, total: int) -> Interval:
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


def sparse_interval(around: Interval, difference: float, changes: Tensor, total: int, most: float = 1.0) -> Interval:
    """The interval of the difference of two models, made wider if few rows make the difference.

    A row that changes the difference by a part of `most` is less uncertain than one that is won or lost as a whole with
    that chance. So the sum of the changes is taken for a number of rows that are won or lost, as in `paired_interval`.
    The rows that make the difference are about (sum t^2)^2 / sum t^4, with t the changes.

    Args:
        around: the interval for many rows, which is the result if there are many.
        difference: the estimate.
        changes: by how much each row can change the difference, as a part of `most`; the sign does not matter.
        total: the number of rows.
        most: the most by which one row of `total` can change the difference, times `total`.

    >>> few, many = torch.tensor([0.5, 0.25]), torch.full((50,), 0.5)
    >>> sparse_interval((0.001, 0.003), 0.002, many, 100)
    (0.001, 0.003)
    >>> [round(end, 3) for end in sparse_interval((0.001, 0.003), 0.002, few, 100)]
    [-0.037, 0.043]
    """
    squares = changes.double().square()
    if float(squares.sum() ** 2 / squares.square().sum()) >= FEW_ROWS:
        return around
    changed, gain = float(changes.abs().sum()), difference / most * total
    gained, lost = max(0.0, changed + gain) / 2, max(0.0, changed - gain) / 2
    low, high = paired_interval((around[0] / most, around[1] / most), gained, lost, total)
    return most * low, most * high


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
    n, m = len(positive), len(negative)
    if not min(fpr, 1 - fpr) * m < FEW_ON_A_SIDE:
        return bootstrap
    special = require("scipy", "special", purpose="intervals of shares need").special
    first, last = (math.ceil(special.bdtrik(level, n, 1 - tpr)) for level in LEVELS)
    most = 1.0 if first < 1 else 1 - int(torch.searchsorted(negative, positive[first - 1])) / m
    least = 0.0 if last >= n else 1 - int(torch.searchsorted(negative, positive[last])) / m
    rate = binomial_interval(round(fpr * m), m)
    low = fpr - math.hypot(fpr - rate[0], max(0.0, fpr - least))
    high = fpr + math.hypot(rate[1] - fpr, max(0.0, most - fpr))
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
