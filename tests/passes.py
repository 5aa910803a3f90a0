"""How often the sums of logits are taken: one call for each batch that is small enough for one piece."""

import pytest

from torch_boc.core import rows
from torch_boc.kernels.cpu import calls, library


def count_passes(monkeypatch):
    """A list that grows with each pass over logits: whether it took the extra sums. Torch's operations compute all."""
    passes, one_pass = [], rows._sums
    monkeypatch.setattr(rows, "_sums", lambda logits, extras: passes.append(extras) or one_pass(logits, extras))
    monkeypatch.setattr(library, "chosen", lambda: (None, "passes are counted"))
    return passes


def count_native_calls(monkeypatch):
    """A list that grows with each call of the native library by its name; skips the test where there is none."""
    if not library.variant():
        pytest.skip(library.why_not())
    made = []
    for name in ("columns", "tally", "log_tails"):
        real = getattr(calls, name)
        monkeypatch.setattr(calls, name, lambda *args, name=name, real=real: made.append(name) or real(*args))
    return made
