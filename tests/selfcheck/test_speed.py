"""Check 7 on clocks that are made up, and once on the real one."""

from itertools import cycle

import pytest
import torch

from tests.selfcheck.cases import CPU
from torch_boc.selfcheck import speed


@pytest.fixture
def clock(monkeypatch):
    """The seconds that the probe and softmax take in turn."""

    def set_to(*seconds):
        times = cycle(seconds)
        monkeypatch.setattr(speed, "cpu_seconds", lambda run: next(times))

    return set_to


def test_a_probe_as_fast_as_softmax(clock):
    clock(1e-3, 1e-3)
    outcome = speed.speed(CPU)
    assert outcome.status == "passed"
    assert outcome.found == "1.00, 1.00, 1.00, 1.00, 1.00 of the time of softmax; up to 1 GB/s"
    assert "instructions per logit are left out" in outcome.note
    assert [x["logits"] for x in outcome.details["shapes"]][:2] == ["15,625 x 10 float32", "256 x 1,000 float32"]


def test_a_probe_that_is_too_slow(clock):
    clock(0.021, 0.001)
    outcome = speed.speed(CPU)
    assert outcome.status == "failed"
    assert "too slow: 15,625 x 10 float32, 256 x 1,000 float32" in outcome.found


def test_no_number_is_too_slow(clock):
    clock(float("inf"), float("inf"))
    assert speed.speed(CPU).status == "failed"


def test_one_shape():
    shape = speed.Shape(8, 1_000, torch.float32, 1.0)
    turns = []

    def seconds(run):
        turns.append(type(run()).__name__)
        return {"Coins": 4.0, "Tensor": 8.0}[turns[-1]] * (10 if len(turns) < 3 else 1) * 1e-6

    found = speed.measure(shape, CPU, seconds)
    assert turns == ["Coins", "Tensor"] * 11
    assert found["of softmax"] == pytest.approx(0.5)
    assert found["probe, us"] == pytest.approx(4.0), "the first turn does not count"
    assert found["GB/s"] == pytest.approx(8.0)
    assert found["softmax GB/s"] == pytest.approx(8.0)


def test_five_shapes_with_their_limits():
    assert len(speed.SHAPES) == 5
    assert {x.limit for x in speed.SHAPES if x.classes >= 1_000} == {1.0}


def test_the_time_of_a_gpu_is_that_between_two_events(monkeypatch):
    now = [0.0]

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = now[0]

        def synchronize(self):
            now[0] += 1000.0

        def elapsed_time(self, end):
            return end.at - self.at

    def run(milliseconds=2.0):
        now[0] += milliseconds

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: run(50.0))
    assert speed.gpu_seconds(run) == pytest.approx(2e-3)


def test_the_real_clock():
    found = speed.measure(speed.Shape(64, 100, torch.float32, 1e9), CPU, speed.cpu_seconds)
    assert 0 < found["of softmax"] < 1e9
