"""The scores of many samples: kept one by one up to a limit, and counted in bins beyond it."""

from typing import Any

import torch
from torch import Tensor

from ..functional.histogram import score_histograms
from ..functional.tallies import empty_tally
from .base import ProbeMetric

# The number of bins for scores that are not kept one by one. They take 4 MB per score.
MANY_BINS = 2**18


class ScoreMetric(ProbeMetric):
    """A metric whose states are the scores of samples; `BoCSeparation` documents the arguments.

    With `thresholds`, the state is one tensor of histograms. Otherwise there are two lists: rows of scores, whose last
    column is 1 for out-of-distribution and 0 for in-distribution, and histograms of earlier rows. They are lists,
    because some processes can have rows where others have histograms.
    """

    scores: tuple[str, ...]
    thresholds: int | None
    exact_up_to: int | None
    _rows: str
    _bins: str

    @property
    def exact(self) -> bool:
        """Whether the scores of all samples so far are kept."""
        return self.thresholds is None and not len(getattr(self, self._bins))

    def histograms(self) -> Tensor:
        """A copy of the counts of all samples so far, of shape (2, scores, bins), in-distribution first."""
        if self.thresholds is not None:
            counts: Tensor = getattr(self, self._bins).clone()
            return counts
        columns = self._stored_rows().T
        total = score_histograms(columns[:-1], columns[-1] == 1, MANY_BINS)
        parts = getattr(self, self._bins)
        for part in [parts] if isinstance(parts, Tensor) else parts:  # after a sync of processes it is one tensor
            total = total + part.sum(0).to(total.device)
        return total

    def _keep(self, rows: Tensor) -> None:
        """Add rows to a list of parts. Parts are joined until each is larger than the next, so the list stays short."""
        parts = getattr(self, self._rows)
        while parts and len(parts[-1]) <= len(rows) and parts[-1].device == rows.device:
            rows = torch.cat([parts.pop(), rows])
        parts.append(rows)
        self._bin_what_is_too_much()

    def _stored_rows(self) -> Tensor:
        parts = getattr(self, self._rows)
        if isinstance(parts, Tensor):  # after a sync of processes
            return parts
        # With `compute_on_cpu`, only the last part can still be on the device.
        return torch.cat([part.to(parts[-1].device) for part in parts]) if parts else self._no_rows()

    def _bin_what_is_too_much(self) -> None:
        """Turn the stored rows into histograms if this process has more rows than it may keep."""
        if self.thresholds is not None or self.exact_up_to is None:
            return
        together = torch.distributed.get_world_size(self.process_group) if self.distributed_available_fn() else 1
        if sum(map(len, getattr(self, self._rows))) > self.exact_up_to // together:
            setattr(self, self._bins, [self.histograms().unsqueeze(0)])
            setattr(self, self._rows, [])

    def _no_rows(self) -> Tensor:
        return empty_tally().sums.new_zeros(0, len(self.scores) + 1).to(self.device)

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        """Give a process without rows or histograms empty ones of the right shape and dtype, so that all can sync."""
        if self.thresholds is None and not getattr(self, self._rows):
            setattr(self, self._rows, [self._no_rows()])
        if self.thresholds is None and not getattr(self, self._bins):
            shape = (0, 2, len(self.scores), MANY_BINS)
            setattr(self, self._bins, [torch.zeros(shape, dtype=torch.int64, device=self.device)])
        super()._sync_dist(*args, **kwargs)
