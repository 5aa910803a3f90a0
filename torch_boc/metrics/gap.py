"""The mean coherence gap as a torchmetrics metric."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import plots
from ..functional.tallies import empty_tally
from ..functional.tally import add_gaps
from .arguments import state_suffix
from .base import ProbeMetric


class CoherenceGap(ProbeMetric):
    """The mean coherence gap as one tensor, which can be logged directly.

    Args:
        num_classes: the number of classes, checked against the logits. By default all batches until `reset` must agree.
            `average="none"` needs it.
        part: "total", "forced" (the part that confidence alone decides) or "free" (the part that the geometry adds).
        average: "micro" for one mean. "none" for one mean per predicted class, with NaN if a class is never predicted.
        ignore_index: samples with this target do not count.
        dim: the class axis; 1 by default, so that logits of shape (N, C, T) have C classes. -1 is for (N, T, C).
        nan_strategy: what `compute` does about rows with NaN or +inf, which never count: "warn", "error" or "ignore".
        validate_args: whether to refuse probabilities.
        kwargs: passed on to `torchmetrics.Metric`.

    >>> metric = CoherenceGap()
    >>> metric(torch.tensor([[4.0, 1.0, 0.0], [0.0, 2.0, 1.0]]))
    tensor(0.0859, dtype=torch.float64)
    """

    def __init__(
        self,
        num_classes: int | None = None,
        *,
        part: str = "total",
        average: str = "micro",
        ignore_index: int | None = None,
        dim: int = 1,
        nan_strategy: str = "warn",
        validate_args: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, dim=dim, nan_strategy=nan_strategy, validate_args=validate_args, **kwargs)
        if part not in ("total", "forced", "free"):
            raise ValueError(f"expected part among total, forced, free, got {part!r}")
        if average not in ("micro", "none"):
            raise ValueError(f"expected average among micro, none, got {average!r}")
        if average == "none" and num_classes is None:
            raise ValueError("expected num_classes with average='none', got None")
        self.part, self.average, self.ignore_index = part, average, ignore_index
        size = num_classes if average == "none" and num_classes is not None else 1
        suffix = state_suffix(part=part, average=average, ignore=ignore_index, dim=dim)
        self._names = tuple(f"boc_{name}_{suffix}" for name in ("gap", "samples", "invalid"))
        zeros = (empty_tally().sums.new_zeros(size), torch.zeros(size, dtype=torch.int64), torch.tensor(0))
        for name, default in zip(self._names, zeros, strict=True):
            self.add_state(name, default, dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor | None = None) -> None:
        """Add a batch: logits of shape (N, C) or (N, C, ...); targets are used only for `ignore_index`."""
        self._check(preds)
        gap, samples, invalid = self._states(*self._names)
        how: dict[str, Any] = {"dim": self.dim, "part": self.part, "ignore_index": self.ignore_index}
        add_gaps((gap, samples, invalid), preds, target, **how)

    def compute(self) -> Tensor:
        """The mean gap of all batches so far; NaN if there were no samples."""
        gap, samples, invalid = (getattr(self, name) for name in self._names)
        self._report(invalid)
        mean: Tensor = gap / samples
        return mean if self.average == "none" else mean.squeeze(0)

    def plot(self, val: Tensor | Sequence[Tensor] | None = None, ax: Any = None) -> tuple[Any, Any]:
        """Draw the mean gap, or several results of `compute` or `forward` step by step; return figure and axes."""
        values = self.compute() if val is None else val
        return plots.draw_values([values] if isinstance(values, Tensor) else values, ax)
