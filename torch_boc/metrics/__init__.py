"""Metrics for torchmetrics. They hold sums, and `torch_boc.functional` does the arithmetic."""

from .coherence import BoCMetric, CoherenceGap
from .hook import watch
from .separation import BoCSeparation
from .views import boc_metrics

__all__ = ["BoCMetric", "BoCSeparation", "CoherenceGap", "boc_metrics", "watch"]
