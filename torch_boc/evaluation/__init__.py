"""The paper's protocol: `evaluate` takes logits and gives a report."""

from ..data.files import read_logits
from ..data.logit_set import LogitSet
from ..report.comparison import Comparison
from ..report.report import Report, read_report
from ..report.results import Results
from .comparison import compare
from .detectors import mahalanobis_scores, odin_scores
from .evaluate import evaluate
from .rows import summarize_rows

__all__ = [
    "Comparison",
    "LogitSet",
    "Report",
    "Results",
    "compare",
    "evaluate",
    "mahalanobis_scores",
    "odin_scores",
    "read_logits",
    "read_report",
    "summarize_rows",
]
