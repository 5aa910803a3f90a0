"""Sets of logits, and where logits and targets are found: in batches, in outputs of models, and in files."""

from .files import read_logits
from .finding import find_logits
from .sets import LogitSet
from .sources import logit_set
from .streams import LogitStream, stream_logits

__all__ = ["LogitSet", "LogitStream", "find_logits", "logit_set", "read_logits", "stream_logits"]
