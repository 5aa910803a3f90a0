"""Language models: traces of generated text, and what servers of language models return."""

from .record import TokenRecord
from .text_report import TextReport
from .trace import Trace

__all__ = ["TextReport", "TokenRecord", "Trace"]
