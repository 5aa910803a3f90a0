"""The paper's protocol: `evaluate` takes logits and gives a report."""

from ..data.files import read_logits
from ..data.sets import LogitSet
from ..data.sources import logit_set
from ..report.comparison import Comparison
from ..report.reading import read_report
from ..report.report import Report
from ..report.results import Results
from .compare import compare
from .detectors import mahalanobis_scores, odin_scores
from .evaluate import evaluate

__all__ = [
    "Comparison",
    "LogitSet",
    "Report",
    "Results",
    "compare",
    "evaluate",
    "logit_set",
    "mahalanobis_scores",
    "odin_scores",
    "read_logits",
    "read_report",
]
