"""Batch inference: a loader in, one row per sample out; or batches of arrays in, batches of columns out."""

from .batch_predictor import BoCBatchPredictor
from .predictor import BoCPredictor
from .resume import check_complete

__all__ = ["BoCBatchPredictor", "BoCPredictor", "check_complete"]
