"""Metrics for torchmetrics. They hold sums, and `torch_boc.functional` does the arithmetic."""

from .coherence import BoCMetric, CoherenceGap
from .separation import BoCSeparation
from .watch import Watch, watch

__all__ = ["BoCMetric", "BoCSeparation", "CoherenceGap", "Watch", "watch"]
