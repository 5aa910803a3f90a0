"""The timing of the GPU tests, on clocks that are made up."""

import pytest
import torch

from tests.kernels.timing import best_times, gpu_seconds, report


def test_contestants_take_turns_and_the_best_counts():
    seconds = {"a": [9.0, 3.0, 1.0, 2.0], "b": [9.0, 4.0, 6.0, 5.0]}
    turns = []

    def measure(run):
        turns.append(run())
        return seconds[turns[-1]].pop(0)

    assert best_times({"a": lambda: "a", "b": lambda: "b"}, measure, rounds=3) == {"a": 1.0, "b": 4.0}
    assert "".join(turns) == "ab" * 4


def test_the_time_is_that_between_two_events(monkeypatch):
    clock = [0.0]

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = clock[0]

        def synchronize(self):
            clock[0] += 1000.0

        def elapsed_time(self, end):
            return end.at - self.at

    def run(milliseconds=2.0):
        clock[0] += milliseconds

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: run(50.0))
    assert gpu_seconds(run) == pytest.approx(2e-3)


@pytest.mark.parametrize(("device", "rate"), [("NVIDIA A100-SXM4-80GB", "659 of 2,039 GB/s"), ("T4", "659 GB/s")])
def test_the_report_says_how_near_the_peak(device, rate):
    logits = torch.empty(16_384, 1_000, device="meta")
    text = report(device, logits, {"sums": 1e-4, "softmax": 2e-4})
    assert text == f"{device}, (16384, 1000) torch.float32: sums 100.0 µs, softmax 200.0 µs; {rate}"
