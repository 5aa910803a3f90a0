"""Metrics for torchmetrics. They hold sums, and `torch_boc.functional` does the arithmetic."""

from .coherence import BoCMetric, CoherenceGap
from .hook import Watch, watch
from .separation import BoCSeparation

__all__ = ["BoCMetric", "BoCSeparation", "CoherenceGap", "Watch", "watch"]
