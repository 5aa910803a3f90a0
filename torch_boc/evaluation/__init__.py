"""The paper's protocol for people with logits in hand: `evaluate` them, read the report."""

from .beyond import beyond_confidence
from .compare import Comparison
from .data import LogitSet, logit_set
from .detectors import mahalanobis_scores, odin_scores
from .evaluate import evaluate
from .files import read_logits
from .report import Report
from .results import Results

__all__ = [
    "Comparison",
    "LogitSet",
    "Report",
    "Results",
    "beyond_confidence",
    "evaluate",
    "logit_set",
    "mahalanobis_scores",
    "odin_scores",
    "read_logits",
]
