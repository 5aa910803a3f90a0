"""Batch inference: a loader in, a row for each sample out."""

from .predictor import BoCPredictor

__all__ = ["BoCPredictor"]
