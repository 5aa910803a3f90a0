"""Metrics for torchmetrics. They hold sums, and `torch_boc.functional` does the arithmetic."""

from .coherence import BoCMetric, CoherenceGap
from .hook import watch
from .separation import BoCSeparation

__all__ = ["BoCMetric", "BoCSeparation", "CoherenceGap", "watch"]
