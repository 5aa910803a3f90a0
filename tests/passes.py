"""How often the sums of logits are taken: one call for each batch that is small enough for one piece."""

import pytest

from torch_boc.core import row_sums
from torch_boc.kernels.cpu import bindings, loader


def count_passes(monkeypatch):
    """A list that grows with each pass over logits: whether it took the extra sums. Torch's operations compute all."""
    passes, one_pass = [], row_sums._sums
    monkeypatch.setattr(row_sums, "_sums", lambda logits, extras: passes.append(extras) or one_pass(logits, extras))
    monkeypatch.setattr(loader, "chosen", lambda: (None, "passes are counted"))
    return passes


def count_native_calls(monkeypatch):
    """A list that grows with each call of the native library by its name; skips the test where there is none."""
    if not loader.variant():
        pytest.skip(loader.why_not())
    made = []
    for name in ("columns", "tally", "log_tails"):
        real = getattr(bindings, name)
        monkeypatch.setattr(bindings, name, lambda *args, name=name, real=real: made.append(name) or real(*args))
    return made
