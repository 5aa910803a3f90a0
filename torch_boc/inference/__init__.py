"""Batch inference: a loader in, a row for each sample out; or batches of arrays in, batches of columns out."""

from .batch_predictor import BoCBatchPredictor
from .part_files import check_complete
from .predictor import BoCPredictor

__all__ = ["BoCBatchPredictor", "BoCPredictor", "check_complete"]
