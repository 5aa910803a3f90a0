"""Metrics for torchmetrics: thin shells around `torch_boc.functional` that hold sums."""

from .coherence import BoCMetric, CoherenceGap
from .separation import BoCSeparation

__all__ = ["BoCMetric", "BoCSeparation", "CoherenceGap"]
