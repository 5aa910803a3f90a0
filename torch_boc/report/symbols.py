"""Explains symbols and short names at the place where each first appears."""

import re
from collections.abc import Iterable

from .topics import glossary


class Introductions:
    """Remembers which symbols have been explained, so that each is explained once, where it first appears.

    >>> reader = Introductions()
    >>> [name for name, _ in reader.of(["Best is BoC: ECE 0.01"])], reader.of(["The ECE again"])
    (['ECE', 'q̄', 'BoC'], [])
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def of(self, texts: Iterable[str]) -> list[tuple[str, str]]:
        """The symbols in these texts that have not been explained yet, with their meanings, in the glossary's order.

        If a meaning contains other symbols, these are explained as well.
        """
        fresh = _within(texts) - self._known
        while more := _within(text for name, text in glossary() if name in fresh) - self._known - fresh:
            fresh |= more
        self._known |= fresh
        return [(name, text) for name, text in glossary() if name in fresh]


def _within(texts: Iterable[str]) -> set[str]:
    whole = "\n".join(texts)
    return {name for name, _ in glossary() if re.search(rf"(?<![\w’'-]){re.escape(name)}(?![\w-])", whole)}
