"""Real logits that come with the package. Each entry has a card that says where its logits come from."""

from .entry import Entry, load, names

__all__ = ["Entry", "load", "names"]
