"""What to do about errors of the probe in a user's loop."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class ErrorPolicy:
    """Turns errors into one warning for each kind, which never interrupts the work of others; or raises them.

    Args:
        on_error: "warn" or "raise".
        who: what skips something after an error.
        remedy: the end of the warning.

    >>> policy = ErrorPolicy("warn")
    >>> with warnings.catch_warnings(record=True, action="always") as raised:
    ...     for size in (16, 7):
    ...         with policy.tolerated("a batch of val"):
    ...             raise ValueError(f"expected logits of shape (N, C), got ({size},)")
    >>> len(raised)
    1
    """

    def __init__(self, on_error: str = "raise", who: str = "torch_boc", remedy: str = "") -> None:
        if on_error not in ("warn", "raise"):
            raise ValueError(f"expected on_error among warn, raise, got {on_error!r}")
        self.on_error, self.who, self.remedy = on_error, who, remedy
        self.kinds: set[str] = set()

    def warn_once(self, text: str) -> None:
        """Warn, once for each kind of text."""
        kind = re.sub(r"\d+", "#", text)  # batches differ in size
        if kind not in self.kinds:
            self.kinds.add(kind)
            # Without a registry Python does not hide the text in the next run.
            warnings.warn_explicit(f"{self.who} skips {text} (reported once{self.remedy})", UserWarning, self.who, 0)

    def handle(self, what: str, error: Exception) -> None:
        """Warn of an error about `what`, or raise it."""
        if self.on_error == "raise":
            raise error
        self.warn_once(f"{what}: {type(error).__name__}: {error}")

    @contextmanager
    def tolerated(self, what: str) -> Iterator[None]:
        """Handle an error in the block. Interruptions (Ctrl-C) are still raised."""
        try:
            yield
        except Exception as error:
            self.handle(what, error)
