"""Metrics for torchmetrics: thin shells around `torch_boc.functional` that hold sums."""

from .coherence import BoCMetric
from .gap import CoherenceGap
from .separation import BoCSeparation
from .watching import Watch, watch

__all__ = ["BoCMetric", "BoCSeparation", "CoherenceGap", "Watch", "watch"]
