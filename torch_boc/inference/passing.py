"""A digest of all samples of a run, so that a later run can tell whether its samples are the same."""

import hashlib
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .batches import Batch
from .hashing import hash_rows
from .ids import hash_ids
from .values import ValueDigest


class Passed(NamedTuple):
    """How many samples were seen, and digests of their inputs and of their targets."""

    rows: int
    inputs: str
    targets: str


class Passing:
    """A digest of samples in their order, however they are cut into batches.

    Attributes:
        rows: how many samples were seen.

    >>> whole, parts = Passing(), Passing()
    >>> whole.add(torch.arange(6).view(3, 2))
    >>> parts.add(torch.arange(2).view(1, 2)), parts.add(torch.arange(2, 6).view(2, 2))
    (None, None)
    >>> whole.so_far() == parts.so_far()
    True
    """

    def __init__(self) -> None:
        self.rows = 0
        self._inputs, self._targets = hashlib.sha256(), hashlib.sha256()

    def add(self, marks: Tensor) -> None:
        """Add samples, as `mark_samples` gives them, on the CPU."""
        self.rows += len(marks)
        self._inputs.update(marks[:, 0].contiguous().numpy().tobytes())
        self._targets.update(marks[:, 1:].contiguous().numpy().tobytes())

    def so_far(self) -> Passed:
        """The number and the digests of the samples so far."""
        return Passed(self.rows, self._inputs.hexdigest()[:16], self._targets.hexdigest()[:16])


def mark_samples(batch: Batch) -> Tensor:
    """Hashes of each sample's inputs and id and, if there is one, of its target: (N, 1) or (N, 2).

    They are on the device of the inputs.
    """
    total = torch.zeros(batch.size, dtype=torch.int64, device=batch.tensors()[0].device)
    for name, x in (*enumerate(batch.args), *batch.kwargs.items()):
        if isinstance(x, Tensor) and x.layout == torch.strided and x.ndim and len(x) == batch.size:
            key, hashes = _number(name, x.dtype, x.shape[1:]), hash_rows(x).to(total.device)
            total += (hashes ^ (hashes >> 32)) * (key | 1) + key
        else:
            total += _number(name, x)  # belongs to the whole batch, and so to each sample
    if batch.ids is not None:
        total += hash_ids(batch.ids).to(total.device)
    if batch.target is None:
        return total[:, None]
    return torch.stack([total, batch.target.to(total.device)], 1)


def _number(*values: Any) -> int:
    """A hash of 64 bits of the values, as far as they can be read."""
    state = ValueDigest([])
    state.add("", values)
    return int(state.text(), 16) - 2**63
