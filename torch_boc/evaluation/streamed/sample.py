"""A random sample of the rows of a set, of bounded size, whatever the number of rows and of parts."""

from typing import Self

import torch
from torch import Tensor

from ...functional.uniforms import seeded_uniforms


def row_draws(seed: int, rows: Tensor) -> Tensor:
    """Two numbers in (0, 1) for each row number, (2, N): one decides about the sample, the other about the half."""
    return torch.stack([seeded_uniforms(seed + which, rows) for which in range(2)])


class RowSample:
    """The rows with the lowest random numbers, of all rows that were added.

    Two samples of disjoint sets of rows are merged to the sample of all these rows: it does not depend on the order or
    on the parts.

    Args:
        size: the largest number of rows to keep.

    >>> sample = RowSample(2)
    >>> sample.add(torch.tensor([0.7, 0.1, 0.4]), torch.tensor([[7.0, 1.0, 4.0]]))
    >>> sample.columns
    tensor([[1., 4.]])
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.order = torch.zeros(0, dtype=torch.float64)
        self.columns = torch.zeros(0, 0, dtype=torch.float64)

    def add(self, order: Tensor, columns: Tensor) -> None:
        """Add rows with these random numbers (N,), and columns of numbers (F, N)."""
        if len(self.order) == self.size:
            low = order < self.order[-1]
            order, columns = order[low], columns[:, low]
        if not len(order):
            return
        order = torch.cat([self.order, order])
        columns = torch.cat([self.columns, columns], 1) if self.columns.numel() else columns
        kept = order.argsort()[: self.size]
        self.order, self.columns = order[kept], columns[:, kept].clone()

    def merge(self, other: Self) -> None:
        """Add the rows of another sample."""
        self.add(other.order, other.columns)
