"""Checks 3 and 4, on tensors that pretend to be on a GPU, and with graphs that are made up."""

from contextlib import contextmanager

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from tests.dispatch import HostSyncError, NoHostSync
from tests.selfcheck.cases import CARD, CPU
from torch_boc.selfcheck import waiting


class Errors(NoHostSync):
    """Raises what torch raises in the mode "error"."""

    def __torch_dispatch__(self, *arguments):
        try:
            return super().__torch_dispatch__(*arguments)
        except HostSyncError as error:
            raise RuntimeError("called a synchronizing CUDA operation") from error


@pytest.fixture
def modes(monkeypatch):
    """The debug mode of torch, which here finds what reads a value back from tensors that pretend to be on a GPU.

    Gives the modes that were set.
    """
    seen, watch = [], Errors()

    def set_mode(mode):
        if mode == "error":
            watch.__enter__()
        elif seen and seen[-1] == "error":
            watch.__exit__(None, None, None)
        seen.append(mode)

    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    # A metric copies the zeros that its states begin with.
    monkeypatch.setattr(FakeTensor, "__deepcopy__", lambda self, memo: self.clone())
    return seen


class Reading(waiting.BoCMetric):
    """Reads a value back from the second batch on."""

    def update(self, preds, target):
        if self._update_count > 1:
            torch.ops.aten._local_scalar_dense(preds[0, 0])
        super().update(preds, target)


def test_updates_that_do_not_wait(modes):
    with FakeTensorMode():
        outcome = waiting.no_waiting(CARD)
    assert outcome.status == "passed", outcome
    assert outcome.found.startswith("4 updates")
    assert modes == ["error", 0]


def test_an_update_that_waits(modes, monkeypatch):
    monkeypatch.setattr(waiting, "BoCMetric", Reading)
    with FakeTensorMode():
        outcome = waiting.no_waiting(CARD)
    assert outcome.status == "failed"
    assert outcome.found == "Reading.update waited for the GPU: called a synchronizing CUDA operation"
    assert modes == ["error", 0], "the mode is as before"


def test_other_errors_keep_their_traceback(modes, monkeypatch):
    def update(self, preds, target):
        if self._update_count > 1:
            raise RuntimeError("something else")

    monkeypatch.setattr(waiting.CoherenceGap, "update", update)
    with FakeTensorMode():
        outcome = waiting.no_waiting(CARD)
    assert outcome.status == "failed"
    assert "in update: raise RuntimeError" in outcome.note
    assert modes == ["error", 0]


def test_a_graph_that_replays():
    finding = waiting.replay(CPU, lambda run: run)
    assert finding.passed
    assert finding.details == {"samples": 1024, "difference": 0.0}


GRAPHS = {
    "replays do not reach the states": lambda run: lambda: None,
    "every replay counts twice": lambda run: lambda: (run(), run()),
    "the capture counts as well": lambda run: run() or run,
}


@pytest.mark.parametrize("capture", GRAPHS.values(), ids=GRAPHS.keys())
def test_a_graph_that_miscounts(capture):
    finding = waiting.replay(CPU, capture)
    assert not finding.passed
    assert finding.details["samples"] != 1024


def test_a_graph_that_reads_old_logits(monkeypatch):
    class Stale(waiting.BoCMetric):
        def update(self, preds, target):
            self.__dict__.setdefault("first", preds.clone())
            super().update(self.first, target)

    made = []
    right = waiting.BoCMetric
    monkeypatch.setattr(waiting, "BoCMetric", lambda *a: (right if made.append(a) or len(made) > 1 else Stale)(*a))
    finding = waiting.replay(CPU, lambda run: run)
    assert not finding.passed
    assert finding.details["samples"] == 1024
    assert finding.details["difference"] > 1e-3


def test_the_capture(monkeypatch):
    log = []

    class Graph:
        def replay(self):
            log.append("replay")

    @contextmanager
    def graph(captured):
        log.append(f"begin {type(captured).__name__}")
        yield
        log.append("end")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("wait"))
    again = waiting._capture(lambda: log.append("run"))
    again()
    assert log == ["wait", "begin Graph", "run", "end", "replay"]


def test_a_cpu_is_skipped():
    for one in (waiting.no_waiting, waiting.graphs):
        outcome = one(CPU)
        assert outcome.status == "skipped"
        assert "needs a CUDA device" in outcome.note
