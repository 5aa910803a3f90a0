"""Check 9 runs two processes here, by gloo, and finds results that differ."""

import time

import pytest
import torch

from tests.selfcheck.cases import CARD, CPU, SECOND
from torch_boc.selfcheck import children, distributed


def test_two_processes_give_what_one_gives():
    outcome = distributed.two_processes(CPU)
    assert outcome.status == "passed", outcome
    assert outcome.details["backend"] == "gloo"
    assert outcome.details["samples"] == [193, 193]


@pytest.fixture
def pretend(monkeypatch):
    """Answers of two processes that are made up; gives what was asked."""
    asked = []
    right = distributed.summarize("cpu", range(3))
    monkeypatch.setattr(distributed, "summarize", lambda place, batches: right)

    def answer(**spoiled):
        def answers(*arguments):
            asked.append(arguments)
            return [right, right | spoiled]

        monkeypatch.setattr(distributed, "in_processes", answers)
        return asked

    return answer


@pytest.mark.parametrize("spoiled", [{"samples": 160.0}, {"gap": 0.5}, {"nll": float("nan")}])
def test_results_that_differ(pretend, spoiled):
    pretend(**spoiled)
    assert distributed.two_processes(CPU).status == "failed"


@pytest.mark.parametrize(
    ("others", "nccl", "places", "backend"),
    [
        ([SECOND], True, ["cuda:0", "cuda:1"], "nccl"),
        ([], True, ["cuda:0", "cuda:0"], "gloo"),
        ([SECOND], False, ["cuda:0", "cuda:0"], "gloo"),
    ],
)
def test_nccl_needs_two_cards(pretend, monkeypatch, others, nccl, places, backend):
    monkeypatch.setattr(distributed, "other_cards", lambda device: others)
    monkeypatch.setattr(distributed.dist, "is_nccl_available", lambda: nccl)
    asked = pretend()
    outcome = distributed.two_processes(CARD)
    assert outcome.status == "passed"
    assert asked == [(distributed.share_work, 2, places, backend)]
    assert ("NCCL needs two cards" in outcome.note) is (backend == "gloo")


def test_without_distributed(monkeypatch):
    monkeypatch.setattr(distributed.dist, "is_available", lambda: False)
    assert distributed.two_processes(CPU).status == "skipped"


def test_a_mean_over_nothing():
    nothing = {"gap": float("nan"), "samples": 0.0}
    assert distributed._difference(nothing, nothing) == 0.0
    assert distributed._difference({"gap": 1.0, "samples": 0.0}, nothing) == float("inf")


def fail(rank, folder):
    raise ValueError(f"rank {rank} cannot")


def sleep(rank, folder):
    time.sleep(600)


@pytest.mark.slow
def test_an_error_in_a_process():
    with pytest.raises(torch.multiprocessing.ProcessRaisedException, match="rank 0 cannot"):
        children.in_processes(fail, 1)


def test_processes_that_take_too_long():
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="expected an answer of 1 processes within 1 s"):
        children.in_processes(sleep, 1, seconds=1.0)
    assert time.monotonic() - start < 60
