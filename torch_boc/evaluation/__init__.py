"""The paper's protocol: `evaluate` takes logits and gives a report."""

from ..data.files import read_logits
from ..data.sets import LogitSet
from ..data.sources import logit_set
from ..report.comparison import Comparison
from ..report.report import Report
from ..report.results import Results
from .beyond import beyond_confidence
from .detectors import mahalanobis_scores, odin_scores
from .evaluate import evaluate
from .streamed import evaluate_tables

__all__ = [
    "Comparison",
    "LogitSet",
    "Report",
    "Results",
    "beyond_confidence",
    "evaluate",
    "evaluate_tables",
    "logit_set",
    "mahalanobis_scores",
    "odin_scores",
    "read_logits",
]
