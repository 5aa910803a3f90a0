"""Intervals by the bootstrap, on cells instead of samples.

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

Only the calibration error has a bias that matters: it is a sum of absolute values, so chance adds to it, and adds once
more in each replicate. Its interval is in `ece.py`. Intervals of shares close to 0 or 1 are in `exact.py`.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .._optional import require
from .probing import ordered

LEVELS = (0.025, 0.975)
UNIT = (0.0, 1.0)
# How many cells, over several replicates, are computed at once: arrays of 2 MB stay in the cache of the CPU.
CHUNK_ELEMENTS = 2**18
MEAN_CELLS = 1024


def random_numbers(seed: int, *labels: str) -> Any:
    """A NumPy generator for one purpose, which `labels` name. Other purposes do not change its random numbers."""
    numpy = require("numpy", purpose="the bootstrap needs")
    return numpy.random.default_rng([seed, *(zlib.crc32(label.encode()) for label in labels)])


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
    observed = statistic(*(cells.double().unsqueeze(0) for cells in counts))[0]
    size = max(1, CHUNK_ELEMENTS // max(len(cells) for cells in counts))
    parts = []
    for start in range(0, replicates, size):
        rows = min(size, replicates - start)
        parts.append(statistic(*(_draw(cells, rows, numbers) for cells in counts)))
    return observed, torch.cat(parts)


def bootstrap_interval(
    estimate: float, observed: Tensor, drawn: Tensor, limits: tuple[float, float] = UNIT
) -> tuple[float, float]:
    """The 95 % interval of `estimate`, as above. NaN if the estimate is not finite, or if no replicate is.

    Args:
        estimate: the statistic of the samples themselves.
        observed: the statistic of the cells, a scalar, with which the replicates are compared.
        drawn: the replicates (R,). Those that are not finite are left out.
        limits: the range of the statistic.
    """
    finite = drawn[drawn.isfinite()]
    if len(finite) == 0 or not torch.tensor(estimate).isfinite():
        return float("nan"), float("nan")
    shift = torch.quantile(finite, finite.new_tensor(LEVELS)) - observed
    low, high = (estimate + shift).clamp(*limits).tolist()
    return low, high


def mean_interval(
    values: Tensor, replicates: int, numbers: Any, limits: tuple[float, float], cells: int = MEAN_CELLS
) -> tuple[float, float]:
    """The interval of the mean of `values`. A cell has neighbours in the order of the values, as many in each cell."""
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
    """Columns of a table: each value under its name, and its interval under the name with `_low` and `_high`."""
    row: dict[str, float] = {}
    for name, value in values.items():
        row |= dict(zip((name, f"{name}_low", f"{name}_high"), (value, *intervals[name]), strict=True))
    return row


def _draw(counts: Tensor, rows: int, numbers: Any) -> Tensor:
    """Multinomial counts of shape (rows, cells); each row has the same total as `counts`."""
    total = int(counts.sum())
    drawn = numbers.multinomial(total, (counts.double() / total).numpy(), size=rows)
    return torch.from_numpy(drawn).double()
