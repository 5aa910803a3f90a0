"""How well a score separates two sets, from the numbers of their scores in fixed places.

All scores of a place count as ties. What is computed from counts comes with the largest error that this can make.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ...functional.separation import binned_auroc, binned_average_precision, binned_fpr_at_tpr
from ..separation import CELLS, TPR


class Separated(NamedTuple):
    """Statistics of two sets of counted scores. Those of the scores themselves differ by no more than the errors."""

    auroc: float
    fpr95: float
    aupr: float
    auroc_error: float
    fpr95_error: float
    aupr_error: float


def separate_counts(positive: Tensor, negative: Tensor) -> Separated:
    """The statistics of two sets, from the numbers of their scores in the same places, in rising order.

    >>> found = separate_counts(torch.tensor([0, 1, 1]), torch.tensor([1, 1, 0]))
    >>> found.auroc, found.auroc_error, found.fpr95, round(found.aupr, 4)
    (0.875, 0.125, 0.5, 0.8333)
    """
    auroc, auroc_error = binned_auroc(positive, negative)
    fpr, fpr_error = binned_fpr_at_tpr(positive, negative, TPR)
    aupr, aupr_error = binned_average_precision(positive, negative)
    return Separated(*map(float, (auroc, fpr, aupr, auroc_error, fpr_error, aupr_error)))


def count_cells(positive: Tensor, negative: Tensor, cells: int = CELLS) -> tuple[Tensor, Tensor, Tensor]:
    """Neighbouring places joined to cells of about as many samples each, as `score_cells` does for all scores.

    Args:
        positive: the number of scores of the first set in each place, in rising order.
        negative: the same for the second set.
        cells: the number of cells.

    Returns:
        The number of samples of each set in each cell, and which cells are a single place; the highest cell first.
    """
    pooled = positive + negative
    kept = pooled > 0
    pooled, positive, negative = (x[kept].flip(0) for x in (pooled, positive, negative))
    if len(pooled) <= cells:
        return positive, negative, torch.ones(len(pooled), dtype=torch.bool)
    total = int(pooled.sum())
    home = (pooled.cumsum(0) - pooled) * cells // total
    large = pooled * cells >= total  # has a cell of its own
    first = torch.ones_like(large)
    first[1:] = (home.diff() > 0) | large[1:] | large[:-1]
    group = first.cumsum(0) - 1
    size = int(group[-1]) + 1
    ends = [x.new_zeros(size).index_add(0, group, x) for x in (positive, negative)]
    return ends[0], ends[1], torch.bincount(group, minlength=size) == 1
