"""The probe in the loops of transformers: the evaluation of `Trainer`, passes over text, and `generate`."""

try:
    import transformers  # noqa: F401
except ImportError as error:
    raise ImportError(
        "expected the transformers library, got none; install it with pip install 'torch-boc[transformers]'"
    ) from error

from ..language.text_report import TextReport
from .columns import COLUMNS
from .generation import BoCGeneration
from .predictions import Predictions
from .scoring import logit_slices, score_tokens
from .stopping import Stop
from .text import evaluate_text
from .trainer import BoCTrainerMetrics

__all__ = [
    "COLUMNS",
    "BoCGeneration",
    "BoCTrainerMetrics",
    "Predictions",
    "Stop",
    "TextReport",
    "evaluate_text",
    "logit_slices",
    "score_tokens",
]
