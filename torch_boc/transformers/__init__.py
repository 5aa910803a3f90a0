"""The probe in the evaluation loop of `transformers.Trainer`, and in teacher-forced passes over text."""

try:
    import transformers  # noqa: F401
except ImportError as error:
    raise ImportError(
        "expected the transformers library, got none; install it with pip install 'torch-boc[transformers]'"
    ) from error

from .columns import COLUMNS
from .predictions import Predictions
from .scoring import logit_slices, score_tokens
from .text import evaluate_text
from .trainer import BoCTrainerMetrics

__all__ = ["COLUMNS", "BoCTrainerMetrics", "Predictions", "evaluate_text", "logit_slices", "score_tokens"]
