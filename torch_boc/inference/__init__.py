"""Batch inference: a loader in, a row for each sample out."""

from .complete import check_complete
from .predictor import BoCPredictor

__all__ = ["BoCPredictor", "check_complete"]
