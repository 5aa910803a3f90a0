"""The checks of the kernels on a CUDA device. Run with `pytest -m gpu`.

Expected values come from the CPU, in float64, by torch's operations, and each test says which kernels must have run.
"""

import subprocess
import sys

import pytest
import torch

from tests.functional.cases import random_logits
from tests.kernels.recorded import watch
from tests.kernels.test_kernels import TRITON_CHECKS, run_checks
from torch_boc import BoCMetric, CoherenceGap
from torch_boc.functional import bag_of_coins, log_p_value, sample_columns
from torch_boc.kernels import use

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
UPDATE = ["short_rows", "spread", "tally", "collect"]
ROWS, CLASSES = 300, 10


@pytest.mark.parametrize("name", [*TRITON_CHECKS, "number_checks"])
def test_on_the_gpu(name):
    run_checks(name, TRITON_INTERPRET="0")


@pytest.fixture
def batch():
    """Logits and targets on the CPU."""
    target = torch.randint(0, CLASSES, (ROWS,), generator=torch.Generator().manual_seed(0))
    return random_logits(ROWS, CLASSES, seed=0), target


def assert_as_on_the_cpu(function, logits, monkeypatch, kernels):
    """What `function` gives of logits, as a dict or a tuple, and the kernels that it starts."""
    with use("torch"):
        expected = function(logits.double())
    function(logits.cuda())  # the trial, in which other kernels run
    started = watch(monkeypatch)
    actual = function(logits.cuda())
    assert started == kernels
    pairs = (
        [(actual[x], expected[x]) for x in expected]
        if isinstance(expected, dict)
        else zip(actual, expected, strict=True)
    )
    for value, other in pairs:
        torch.testing.assert_close(value.cpu().double(), other.double(), rtol=2e-4, atol=1e-6)


def test_coins_and_p_values(batch, monkeypatch):
    def probe(logits):
        coins = bag_of_coins(logits)
        return (*coins, log_p_value(coins))

    assert_as_on_the_cpu(probe, batch[0], monkeypatch, ["short_rows", "spread", "coins", "log_p_values"])


def test_few_rows_of_a_large_vocabulary(monkeypatch):
    """Several programs share each of them; a batch of many rows is not split, and gives the same."""

    def probe(logits):
        coins = bag_of_coins(logits)
        return (*coins, log_p_value(coins))

    logits = random_logits(300, 128_256, seed=0).bfloat16()
    for rows, first in ((8, ["long_rows"] * 3 + ["spread"] * 2), (300, ["long_rows", "spread"])):
        with monkeypatch.context() as patch:
            assert_as_on_the_cpu(probe, logits[:rows], patch, [*first, "coins", "log_p_values"])


def test_columns(batch, monkeypatch):
    assert_as_on_the_cpu(sample_columns, batch[0], monkeypatch, ["short_rows", "spread", "columns"])


def test_an_update(batch, monkeypatch):
    def summary(logits):
        metric = BoCMetric(num_classes=CLASSES).to(logits.device)
        metric.update(logits, batch[1].to(logits.device))
        return metric.total()

    assert_as_on_the_cpu(summary, batch[0], monkeypatch, UPDATE)


def test_the_gap(batch, monkeypatch):
    def gap(logits):
        metric = CoherenceGap(num_classes=CLASSES).to(logits.device)
        metric.update(logits)
        return (metric.compute(),)

    assert_as_on_the_cpu(gap, batch[0], monkeypatch, ["short_rows", "gap_tally", "collect"])


def warm_metric(logits, target):
    """A metric after one update, made on a side stream as torch asks before a capture."""
    metric, stream = BoCMetric(num_classes=CLASSES).cuda(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        metric.update(logits, target)
    torch.cuda.current_stream().wait_stream(stream)
    return metric


def test_a_graph_counts_every_replay(batch, monkeypatch):
    """One update before the capture, and three replays: four times as many samples."""
    logits, target = (x.cuda() for x in batch)
    metric, graph = warm_metric(logits, target), torch.cuda.CUDAGraph()
    once = [state.clone() for state in metric.total()]
    started = watch(monkeypatch)
    with torch.cuda.graph(graph):
        metric.update(logits, target)
    assert started == UPDATE
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert metric.total().counts[0].item() == 4 * ROWS
    for state, first in zip(metric.total(), once, strict=True):
        torch.testing.assert_close(state, 4 * first, rtol=1e-15, atol=0)


def test_a_cold_capture_goes_by_torch(batch, monkeypatch):
    """Logits of a number of classes that no kernel has seen: nothing is loaded while the graph is captured."""
    warm_metric(*(x.cuda() for x in batch))
    logits = random_logits(32, 23, seed=1).cuda()
    started, graph = watch(monkeypatch), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        coins = bag_of_coins(logits)
    graph.replay()
    assert "short_rows" not in started
    with use("torch"):
        expected = bag_of_coins(logits.cpu().double())
    torch.testing.assert_close(coins.odds.cpu().double(), expected.odds, rtol=1e-5, atol=0)


def test_an_update_does_not_make_the_host_wait(batch):
    logits, target = (x.cuda() for x in batch)
    metric = warm_metric(logits, target)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        metric.update(logits, target)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_fifty_updates_are_the_same_to_the_last_bit(batch):
    logits, target = (x.cuda() for x in batch)
    results = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(50):
            metric = BoCMetric(num_classes=CLASSES).cuda()
            metric.update(logits, target)
            results.append([state.tolist() for state in metric.total()])
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(result == results[0] for result in results)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_another_card_is_not_touched():
    code = """
import torch, torch_boc
metric = torch_boc.BoCMetric(num_classes=10).to("cuda:1")
metric.update(torch.randn(64, 10, device="cuda:1"), torch.zeros(64, dtype=torch.int64, device="cuda:1"))
assert metric.total().counts[0].item() == 64
assert torch._C._cuda_hasPrimaryContext(1)
assert not torch._C._cuda_hasPrimaryContext(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
