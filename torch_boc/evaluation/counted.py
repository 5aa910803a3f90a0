"""Scores of a set in rising order: as a tensor of all of them, or as counts of the scores in fixed places.

A set that is too large for memory has counts only. All scores of a place then have the value of the place, so that two
scores in one place are a tie.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Counted:
    """The scores of a set in places.

    Attributes:
        values: (P,), the score of each place, rising.
        counts: (P,), the number of scores in each place.
    """

    values: Tensor
    counts: Tensor

    def __len__(self) -> int:
        return int(self.counts.sum())

    def at(self, rank: int) -> Tensor:
        """The score of this rank, from 0 for the lowest; a negative rank counts from the highest."""
        wanted = rank + len(self) if rank < 0 else rank
        return self.values[torch.searchsorted(self.counts.cumsum(0), wanted, right=True)]

    def below(self, edges: Tensor) -> Tensor:
        """The number of scores below each of the edges."""
        upto = torch.cat([self.counts.new_zeros(1), self.counts.cumsum(0)])
        return upto[torch.searchsorted(self.values, edges)]

    def finite(self) -> "Counted":
        """The scores that are finite."""
        kept = self.values.isfinite()
        return Counted(self.values[kept], self.counts[kept])


Rising = Tensor | Counted


def score_at(rising: Rising, rank: int) -> Tensor:
    """The score of this rank; a negative rank counts from the highest."""
    return rising[rank] if isinstance(rising, Tensor) else rising.at(rank)


def count_below(rising: Rising, edges: Tensor) -> Tensor:
    """The number of scores below each of the edges."""
    return torch.searchsorted(rising, edges) if isinstance(rising, Tensor) else rising.below(edges)


def finite_scores(rising: Rising) -> Rising:
    """The scores that are finite."""
    return rising[rising.isfinite()] if isinstance(rising, Tensor) else rising.finite()
