"""The probe in the loops of transformers: the evaluation of `Trainer`, passes over text, and `generate`."""

try:
    import transformers  # noqa: F401
except ImportError as error:
    raise ImportError("its adapters need transformers: pip install 'torch-boc[transformers]'") from error

from .generation import BoCGeneration
from .perplexity import evaluate_text
from .teacher_forcing import score_tokens
from .trainer import BoCTrainerMetrics, Predictions

__all__ = ["BoCGeneration", "BoCTrainerMetrics", "Predictions", "evaluate_text", "score_tokens"]
