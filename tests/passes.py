"""How often the sums of logits are taken: one call for each batch that is small enough for one piece."""

import pytest

from torch_boc.core import rows
from torch_boc.kernels.cpu import calls, library


def count_passes(monkeypatch):
    """A list that grows with each pass over logits: whether it took the extra sums. Torch's operations compute all."""
    passes, one_pass = [], rows._sums

    def counted(logits, extras):
        passes.append(extras)
        return one_pass(logits, extras)

    monkeypatch.setattr(rows, "_sums", counted)
    monkeypatch.setattr(library, "chosen", lambda: (None, "passes are counted"))
    return passes


NATIVE = ("columns", "tally", "log_tails")


def count_native_calls(monkeypatch):
    """A list that grows with each call of the native library by its name; skips the test where there is none."""
    if not library.variant():
        pytest.skip(library.why_not())
    made = []

    def counted(name, function):
        def call(*args, **kwargs):
            made.append(name)
            return function(*args, **kwargs)

        return call

    for name in NATIVE:
        monkeypatch.setattr(calls, name, counted(name, getattr(calls, name)))
    return made
