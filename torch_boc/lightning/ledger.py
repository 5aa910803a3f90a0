"""How many batches of each loader were read or lost, in all processes together."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torchmetrics import Metric


class Account(NamedTuple):
    """What all processes agree on.

    Attributes:
        taken: for each loader, how many batches were read.
        skipped: for each loader, how many batches are missing in its values; all batches, if the loader is refused.
        refused: for each loader, whether its values cannot be relied on.
        said: the problems that the first process has reported.
    """

    taken: list[int]
    skipped: list[int]
    refused: list[bool]
    said: int


class Ledger(Metric):
    """Adds up counts over the processes.

    >>> Ledger(2).settle(taken=[3, 0], lost=[1, 0], refused=[0, 0], said=0)
    Account(taken=[3, 0], skipped=[1, 0], refused=[False, False], said=0)
    """

    full_state_update = False
    counts: Tensor

    def __init__(self, loaders: int) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(3 * loaders + 1, dtype=torch.int64), dist_reduce_fx="sum")

    def settle(self, *, taken: Sequence[int], lost: Sequence[int], refused: Sequence[int], said: int) -> Account:
        """The counts of all processes together, from the counts of this process; every process must call it."""
        self.reset()
        self.update([*taken, *lost, *refused, said])
        *numbers, said = self.compute().tolist()
        loaders = len(taken)
        taken, lost, reasons = (numbers[start : start + loaders] for start in range(0, 3 * loaders, loaders))
        bad = [reason > 0 for reason in reasons]
        skipped = [there + gone if none else gone for there, gone, none in zip(taken, lost, bad, strict=True)]
        return Account(taken, skipped, bad, said)

    def update(self, counts: Sequence[int]) -> None:
        """Put the counts of this process into the state."""
        self.counts = self.counts + torch.tensor(counts, device=self.counts.device)

    def compute(self) -> Tensor:
        """The counts of all processes."""
        return self.counts
