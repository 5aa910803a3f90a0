"""Peak memory grows neither with the length of a text nor, beyond a slice of logits, with the vocabulary."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_boc.transformers import evaluate_text
from torch_boc.transformers import windows as windows_module

from .text_cases import byte_model, byte_tokenizer, prose


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all storages that were made inside of it and are still alive, and their peak."""

    def __init__(self):
        super().__init__()
        self.live, self.peak, self.known = 0, 0, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor):
                self._count(x.untyped_storage(), given)
        return result

    def _count(self, storage, given):
        key, size = storage._cdata, storage.nbytes()
        if key in self.known or key in given:
            return
        self.known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key, size):
        self.known.discard(key)
        self.live -= size


def peak(text, vocabulary=1000):
    model = byte_model(context=64, vocabulary=vocabulary)
    with LiveBytes() as counter:
        evaluate_text(model, byte_tokenizer(), [iter([text[i : i + 50] for i in range(0, len(text), 50)])])
    return counter.peak


def test_it_counts_what_lives():
    with LiveBytes() as counter:
        x = torch.zeros(1000)
        y = x + 1
        view = y[:10]
        del y
        for _ in range(100):
            torch.zeros(500)
        assert counter.live == 8000
        del x, view
    assert counter.live == 0
    assert 8000 + 2000 <= counter.peak < 8000 + 10_000


@pytest.fixture
def small_slices(monkeypatch):
    monkeypatch.setattr(windows_module, "MOST_LOGITS", 2**17)


def test_peak_memory_does_not_grow_with_the_length(small_slices):
    short, long = peak(prose(400)), peak(prose(4000))
    assert long <= 1.02 * short


def test_peak_memory_does_not_grow_with_the_number_of_texts(small_slices):
    def of(number):
        with LiveBytes() as counter:
            evaluate_text(byte_model(), byte_tokenizer(), {str(i): prose(100) for i in range(number)})
        return counter.peak

    assert of(6) <= 1.02 * of(2)


def test_peak_memory_is_bounded_in_the_vocabulary(small_slices):
    """A slice has as many logits, or fewer, whatever the vocabulary is; a whole window would have 16 times as many."""
    few, many = (peak(prose(300), vocabulary) for vocabulary in (4096, 65_536))
    assert many - few < 2**17 * 4  # bytes of one slice
