"""Language models: traces of generated text, and what servers of language models return."""

from .record import TokenRecord
from .responses import ResponseTokens, read_response
from .trace import Trace

__all__ = ["ResponseTokens", "TokenRecord", "Trace", "read_response"]
