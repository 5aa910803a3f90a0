"""Real logits that come with the package, each with a card that says where they are from."""

from .entry import Entry, load, names

__all__ = ["Entry", "load", "names"]
