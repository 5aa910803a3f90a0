"""Sets of logits; where logits and targets are found in batches, outputs and files; files that appear whole."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .files import read_logits
    from .finding import find_logits
    from .sets import LogitSet
    from .sources import logit_set
    from .streams import LogitStream, stream_logits

__all__ = ["LogitSet", "LogitStream", "find_logits", "logit_set", "read_logits", "stream_logits"]

# These are imported when they are first used, because `atomic` is used where torch is not.
_HOMES = {
    "LogitSet": "sets",
    "LogitStream": "streams",
    "find_logits": "finding",
    "logit_set": "sources",
    "read_logits": "files",
    "stream_logits": "streams",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
