"""Metrics for torchmetrics. They hold sums, and `torch_boc.functional` does the arithmetic."""

from .coherence import BoCMetric, CoherenceGap
from .separation import BoCSeparation
from .views import boc_metrics
from .watching import watch

__all__ = ["BoCMetric", "BoCSeparation", "CoherenceGap", "boc_metrics", "watch"]
