"""Language models: traces of generated text, reports on text, and what servers of language models return."""

from .record import TokenRecord
from .responses import ResponseTokens, read_response
from .text_report import TextReport
from .trace import Trace

__all__ = ["ResponseTokens", "TextReport", "TokenRecord", "Trace", "read_response"]
