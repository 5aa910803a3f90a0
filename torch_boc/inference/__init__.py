"""Batch inference: a loader in, a row for each sample out; or batches of arrays in, batches of columns out."""

from .complete import check_complete
from .mapped import BoCBatchPredictor
from .predictor import BoCPredictor

__all__ = ["BoCBatchPredictor", "BoCPredictor", "check_complete"]
