"""How far the work on tables is: a bar in a terminal or a notebook, or words for a function."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...inference.progress import progress_bar


class Telling:
    """Tells how many rows are done, and what is done after them."""

    def __init__(self, words: Callable[[str], object] | None, bar: Any, total: int) -> None:
        self._words, self._bar, self._total, self._done = words, bar, total, 0

    def say(self, message: str) -> None:
        """Say a few words."""
        if self._words is not None:
            self._words(message)
        elif self._bar is not None:
            self._bar.set_postfix_str(message)

    def rows(self, name: str, new: int) -> None:
        """So many rows of a set were read."""
        self._done += new
        if self._bar is not None:
            self._bar.update(new)
        elif self._words is not None:
            self._words(f"{name}: {self._done:,} of {self._total:,} rows" if self._total else f"{self._done:,} rows")


@contextmanager
def telling(progress: bool | Callable[[str], object], total: int) -> Iterator[Telling]:
    """Tells by a bar if `progress` is True, by that function if it is one, and not at all if it is False."""
    words = progress if callable(progress) else None
    with progress_bar(progress is True, total or None) as bar:
        yield Telling(words, bar, total)
