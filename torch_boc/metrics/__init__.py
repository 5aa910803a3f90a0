"""Metrics for torchmetrics. They hold sums, and `torch_boc.functional` does the arithmetic."""

from .coherence import BoCMetric
from .gap import CoherenceGap
from .separation import BoCSeparation
from .watching import Watch, watch

__all__ = ["BoCMetric", "BoCSeparation", "CoherenceGap", "Watch", "watch"]
