"""The probe in the loops of transformers: the evaluation of `Trainer`, passes over text, and `generate`."""

try:
    import transformers  # noqa: F401
except ImportError as error:
    raise ImportError(
        "expected the transformers library, got none; install it with pip install 'torch-boc[transformers]'"
    ) from error

from .generation import BoCGeneration
from .perplexity import TextNumbers, evaluate_text
from .scoring import logit_slices, score_tokens
from .stopping import Stop
from .trainer import COLUMNS, BoCTrainerMetrics, Predictions

__all__ = [
    "COLUMNS",
    "BoCGeneration",
    "BoCTrainerMetrics",
    "Predictions",
    "Stop",
    "TextNumbers",
    "evaluate_text",
    "logit_slices",
    "score_tokens",
]
