"""Means of the coins over a set, for any number of samples."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.coins import Coins
from ...functional.bins import count, equal_bin
from ...report.tables import CoherenceRow
from ..gaps import ALPHA

MEANS = ("confidence", "dominance", "gap", "forced_gap", "free_gap", "concentration", "rejection_rate", "p_value")


class Moments(NamedTuple):
    """Sums over samples, in float64.

    Attributes:
        samples: the number of samples.
        sums: (8,), of the columns `MEANS`.
        squares: (2,), the sums of squared distances of the gap and of the free gap from their means.
        largest: the largest gap.
        bins: (4, bins): the number of samples in each bin of confidence, and the sums of their confidences, gaps and
            forced gaps.
    """

    samples: int
    sums: Tensor
    squares: Tensor
    largest: float
    bins: Tensor

    def means(self) -> dict[str, Any]:
        """The columns of a `GapRow`, but for the names."""
        found = dict(zip(MEANS, (self.sums / self.samples).tolist(), strict=True))
        total, rest = (self.squares / self.samples).tolist()
        known = total > (1e-14 * self.largest) ** 2
        return {"samples": self.samples, **found, "r2": 1 - rest / total if known else math.nan}

    def coherence(self, name: str) -> list[CoherenceRow]:
        """The means of the gap in each bin of confidence. Bins without samples have NaN."""
        samples, bins = self.bins[0], self.bins.shape[1]
        means = (self.bins[1:] / samples).T.tolist()
        return [
            CoherenceRow(name, i / bins, (i + 1) / bins, int(samples[i]), *values) for i, values in enumerate(means)
        ]


def take_moments(coins: Coins, log_p: Tensor, bins: int) -> Moments:
    """The sums over a batch, with the logarithms of the p-values."""
    p, gap = log_p.exp(), coins.gap
    forced = gap - coins.free_gap
    columns = [coins.confidence, coins.dominance, gap, forced, coins.free_gap, coins.concentration]
    sums = torch.stack([x.sum() for x in (*columns, (p <= ALPHA).double(), p)])
    squares = torch.stack([(x - x.mean()).square().sum() for x in (gap, coins.free_gap)])
    place = equal_bin(coins.confidence, bins)
    binned = torch.stack([torch.ones_like(gap), coins.confidence, gap, forced])
    return Moments(len(gap), sums, squares, float(gap.amax()), count(place.expand(4, -1), binned, bins))


def add_moments(one: Moments, other: Moments) -> Moments:
    """The sums over both sets (Chan, Golub and LeVeque, 1979)."""
    n, m = one.samples, other.samples
    which = torch.tensor([MEANS.index("gap"), MEANS.index("free_gap")])
    apart = one.sums[which] / n - other.sums[which] / m
    squares = one.squares + other.squares + apart.square() * (n * m / (n + m))
    largest = max(one.largest, other.largest)
    return Moments(n + m, one.sums + other.sums, squares, largest, one.bins + other.bins)
