"""Check 10 on the CPU, where a model says that memory ran out; and the limit of a GPU's memory, by mocks."""

from types import SimpleNamespace

import pytest
import torch

from tests.selfcheck.cases import CARD, CPU
from torch_boc.selfcheck import backoff


def test_batches_are_halved():
    outcome = backoff.back_off(CPU)
    assert outcome.status == "passed"
    assert outcome.found.startswith("200 of 200 samples, in pieces of 100, 50, 25")
    assert any("do not fit in memory" in text for text in outcome.warnings)


def test_memory_that_never_runs_out_is_no_pass(monkeypatch):
    monkeypatch.setattr(backoff, "ROOM", 1000)
    outcome = backoff.back_off(CPU)
    assert outcome.status == "failed"
    assert outcome.note == "memory never ran out, so that nothing was checked"


def test_an_error_that_gets_through(monkeypatch):
    monkeypatch.setattr("torch_boc.inference.fitting.is_out_of_memory", lambda error: False)
    outcome = backoff.back_off(CPU)
    assert outcome.status == "failed"
    assert outcome.found == "OutOfMemoryError: expected at most 30 samples, got 100"


def lost(table):
    return {name: x[:-1] for name, x in table.items()}


def wrong_order(table):
    return table | {"prediction": table["prediction"].flip(0)}


def wrong_numbers(table):
    return table | {"gap": table["gap"] + 1e-6}


@pytest.mark.parametrize("spoil", [lost, wrong_order, wrong_numbers])
def test_wrong_pieces(monkeypatch, spoil):
    class Wrong(backoff.BoCPredictor):
        def predict(self, inputs):
            for table in super().predict(inputs):
                yield spoil(table) if self.model.greedy else table

    monkeypatch.setattr(backoff, "BoCPredictor", Wrong)
    assert backoff.back_off(CPU).status == "failed"


def test_the_limit_of_a_gpu(monkeypatch):
    log = []
    need = backoff.ROOM * backoff.SAMPLE_BYTES
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: log.append("empty"))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: need)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=8 * need))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda part, device: log.append(part))
    with pytest.raises(ZeroDivisionError), backoff.limited_memory(CARD):
        log.append(1 // len(log[2:]))
    assert log == ["empty", 0.25, 1.0, "empty"]


def test_a_batch_does_not_fit_and_a_quarter_does():
    assert backoff.BATCH // 4 < backoff.ROOM < backoff.BATCH // 2
