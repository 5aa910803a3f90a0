"""Problems of the probe during training: a warning for each kind, or an error."""

import re
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .loaders import SEVERAL_LOADERS

CHOICES = ("warn", "raise")


class Problems:
    """Turns errors into one warning for each kind, so that the probe never ends a training; or raises them.

    In a distributed run the first process warns at once. The others wait for `settle`, and then warn about what the
    first has not mentioned.

    Args:
        on_error: "warn" or "raise".

    >>> problems = Problems("warn")
    >>> with warnings.catch_warnings(record=True, action="always") as said:
    ...     for size in (16, 7):
    ...         with problems.tolerated("a batch of val"):
    ...             raise ValueError(f"expected logits of shape (N, C), got ({size},)")
    >>> len(said)
    1
    """

    def __init__(self, on_error: str = "raise") -> None:
        if on_error not in CHOICES:
            raise ValueError(f"expected on_error among {', '.join(CHOICES)}, got {on_error!r}")
        self.on_error, self.rank = on_error, 0
        self._kinds: set[str] = set()
        self._waiting: dict[str, str] = {}

    @contextmanager
    def tolerated(self, what: str) -> Iterator[None]:
        """Continue after an error in the block, which is about `what`. Interruptions (Ctrl-C) are still raised."""
        try:
            yield
        except Exception as error:
            if self.on_error == "raise":
                raise
            self._meet(what, error)

    def said_by_first(self) -> int:
        """The kinds that the first process has reported, as a number with a bit for each; 0 in the other processes."""
        bits = {_bit(kind) for kind in self._kinds} if self.rank == 0 else ()
        return sum(bits)

    def settle(self, said: int) -> None:
        """Give the waiting warnings, except for the kinds that the first process has reported."""
        waiting, self._waiting = self._waiting, {}
        for kind, message in waiting.items():
            if not said & _bit(kind):
                warnings.warn(message, stacklevel=2)

    def _meet(self, what: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        kind = re.sub(r"\d+", "#", f"{what}: {text}")  # batches differ in size
        if kind in self._kinds:
            return
        self._kinds.add(kind)
        message = (
            f"BoCCallback goes on without {what}: {text}. This is said once; the key `skipped_batches` counts batches "
            "that are left out, and BoCCallback(on_error='raise') stops with the error"
        )
        if self.rank == 0:
            warnings.warn(message, stacklevel=4)
        else:
            self._waiting[kind] = f"process {self.rank}: {message}"


def _bit(kind: str) -> int:
    return int(1 << (zlib.crc32(kind.encode()) % 62))


def explain(exception: BaseException, logged: Any) -> None:
    """Add a note to an error of Lightning about several loaders: what Lightning requires of the step.

    Args:
        exception: gets a note, shown under its message, if it is about `dataloader_idx` or about a name that Lightning
            has changed.
        logged: the names of what was logged.
    """
    changed = [name.rsplit("/dataloader_idx_", 1)[0] for name in logged if "/dataloader_idx_" in name]
    text = str(exception)
    missing = any(f"{quote}{name}{quote}" in text for name in changed for quote in "`'")
    if (missing or "`dataloader_idx`" in text) and SEVERAL_LOADERS not in text:
        exception.add_note(f"From torch_boc: {SEVERAL_LOADERS}.")
