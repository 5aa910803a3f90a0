"""Sets of logits; where logits and targets are found in batches, outputs and files; files that appear whole."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .extract import find_logits
    from .files import LogitReader, read_logits
    from .logit_set import LogitSet
    from .losses import LossCall, capture_losses

__all__ = ["LogitReader", "LogitSet", "LossCall", "capture_losses", "find_logits", "read_logits"]

# These are imported when they are first used, because `atomic` is used where torch is not.
_HOMES = {
    **{"LogitReader": "files", "read_logits": "files", "LogitSet": "logit_set", "find_logits": "extract"},
    **{"LossCall": "losses", "capture_losses": "losses"},
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
