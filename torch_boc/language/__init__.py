"""Language models: traces of generated text, and what servers of language models return."""

from .record import TokenRecord
from .trace import Trace

__all__ = ["TokenRecord", "Trace"]
