"""What a report says and shows: tables, figures, sentences and pages, one topic in one file."""

from .comparison import Comparison
from .report import Report
from .tables import Results

__all__ = ["Comparison", "Report", "Results"]
