"""Intervals by the bootstrap, on cells instead of samples.

A replicate of the plain bootstrap draws N samples with replacement. A statistic that depends on the samples only
through how many fall into each of some cells needs no samples: the counts of a replicate are multinomial, with the
shares of the cells as chances. So a thousand replicates of a million samples cost a thousand draws of as many numbers
as there are cells, and no array has both the samples and the replicates as axes.

The cells are so fine that what varies within one hardly adds to the variance of the statistic. What they do to its
value is taken out again: with T the estimate from the samples themselves and t that from the cells,

    interval = T + (quantiles of the replicates - t)

limited to the range of the statistic. Where samples are so few that each value has its own cell, T = t and this is the
percentile interval of the plain bootstrap.

The calibration error is the one statistic with a bias that matters: it is a sum of absolute values, to which chance
adds, and adds once more in each replicate. `ece.py` has its interval; shares close to 0 or 1 are in `exact.py`.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from .._optional import require
from .probing import ordered

LEVELS = (0.025, 0.975)
UNIT = (0.0, 1.0)
NORMAL_QUANTILE = NormalDist().inv_cdf(LEVELS[1])
# Cells of all replicates that are evaluated at once: arrays of 2 MB stay in the cache.
CHUNK_ELEMENTS = 2**18
MEAN_CELLS = 1024


def random_numbers(seed: int, *labels: str) -> Any:
    """A NumPy generator for the thing that `labels` name: what else is evaluated does not change its numbers."""
    numpy = require("numpy", purpose="the bootstrap needs")
    return numpy.random.default_rng([seed, *(zlib.crc32(label.encode()) for label in labels)])


def replicate(
    statistic: Callable[..., Tensor], counts: Sequence[Tensor], replicates: int, numbers: Any
) -> tuple[Tensor, Tensor]:
    """A statistic of cells and its replicates.

    Args:
        statistic: from counts (R, cells) in float64, one for each of `counts`, to (R, ...).
        counts: how many samples are in each cell, for each set that is drawn on its own.
        replicates: R.
        numbers: from `random_numbers`.

    Returns:
        The statistic of `counts` themselves (...), and of the replicates (R, ...).
    """
    observed = statistic(*(cells.double().unsqueeze(0) for cells in counts))[0]
    size = max(1, CHUNK_ELEMENTS // max(len(cells) for cells in counts))
    parts = []
    for start in range(0, replicates, size):
        rows = min(size, replicates - start)
        parts.append(statistic(*(_draw(cells, rows, numbers) for cells in counts)))
    return observed, torch.cat(parts)


def bootstrap_interval(
    estimate: float, observed: Tensor, replicates: Tensor, limits: tuple[float, float] = UNIT
) -> tuple[float, float]:
    """The 95 % interval of `estimate`; see above. NaN where the estimate is not finite, or no replicate is.

    Args:
        estimate: from the samples themselves.
        observed: what to compare the replicates with: the same from the cells, a scalar.
        replicates: (R,); those that are not finite do not count.
        limits: the range of the statistic.
    """
    finite = replicates[replicates.isfinite()]
    if len(finite) == 0 or not torch.tensor(estimate).isfinite():
        return float("nan"), float("nan")
    shift = torch.quantile(finite, finite.new_tensor(LEVELS)) - observed
    low, high = (estimate + shift).clamp(*limits).tolist()
    return low, high


def mean_interval(
    values: Tensor, replicates: int, numbers: Any, limits: tuple[float, float], cells: int = MEAN_CELLS
) -> tuple[float, float]:
    """The interval of the mean of `values`, whose cells are neighbours in order, equally many in each."""
    rising, cells = ordered(values), min(cells, len(values))
    edges = torch.arange(cells + 1) * len(rising) // cells
    counts = edges.diff()
    means = torch.stack([part.mean() for part in rising.split(counts.tolist())])
    if not bool(means.isfinite().all()):
        return float("nan"), float("nan")

    def mean(drawn: Tensor) -> Tensor:
        return drawn @ means / len(rising)

    return bootstrap_interval(float(values.mean()), *replicate(mean, [counts], replicates, numbers), limits)


def with_intervals(values: Mapping[str, float], intervals: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Columns of a table: each value, and its interval in `_low` and `_high`."""
    row: dict[str, float] = {}
    for name, value in values.items():
        row |= dict(zip((name, f"{name}_low", f"{name}_high"), (value, *intervals[name]), strict=True))
    return row


def _draw(counts: Tensor, rows: int, numbers: Any) -> Tensor:
    """(rows, cells) multinomial counts with the same total as `counts`."""
    total = int(counts.sum())
    drawn = numbers.multinomial(total, (counts.double() / total).numpy(), size=rows)
    return torch.from_numpy(drawn).double()
