"""Check 6 finds a copy of the logits, by an allocator that is made up or by counting storages."""

import pytest
import torch

from tests.dispatch import MemoryMeter
from tests.selfcheck.cases import CPU
from torch_boc.selfcheck import peaks


@pytest.fixture
def allocator(monkeypatch):
    """The counters of torch.cuda, fed by the storages that live."""
    with MemoryMeter() as meter:
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: meter.live)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: meter.peak)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: setattr(meter, "peak", meter.live))
        yield meter


def no_extra(logits, target):
    return logits.sum()


def test_what_a_function_takes_beside_what_was_there(allocator):
    before = torch.ones(1000)
    assert peaks.extra(CPU, lambda: before + 1) == 4000
    assert peaks.extra(CPU, lambda: before.sum()) == 4


def test_a_copy_is_found(allocator, monkeypatch):
    monkeypatch.setattr(peaks, "update_metric", no_extra)
    monkeypatch.setattr(peaks, "probe", no_extra)
    logits = torch.randn(2, 9, 5000)
    assert peaks.measure(logits).passed
    monkeypatch.setattr(peaks, "probe", lambda z, target: z.contiguous().sum())
    monkeypatch.setattr(peaks.probe, "__name__", "probe", raising=False)
    finding = peaks.measure(logits)
    assert not finding.passed
    assert finding.details["probe"] == pytest.approx(8 / 9, rel=1e-3)


@pytest.mark.parametrize(("metric", "probe", "passed"), [(1, 99, True), (101, 1, False), (1, 101, False)])
def test_both_must_be_small(monkeypatch, metric, probe, passed):
    shares = iter([metric, probe])
    monkeypatch.setattr(peaks, "extra", lambda device, run: run() is None or next(shares))
    logits = torch.randn(1, 5, 50)  # 1,000 bytes
    finding = peaks.measure(logits)
    assert finding.passed is passed
    assert finding.found == f"update_metric {metric / 1000:.1%}, probe {probe / 1000:.1%} of 0 MB"


def test_a_cpu_is_skipped():
    assert peaks.peak(CPU).status == "skipped"
