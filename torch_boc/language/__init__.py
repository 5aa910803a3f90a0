"""Language models: traces of generated text."""

from .record import TokenRecord
from .trace import Trace

__all__ = ["TokenRecord", "Trace"]
