"""Before "auto" relies on the kernels they are compared with torch's operations; here by those in C++."""

import logging
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from tests.dispatch import NoHostSync
from tests.functional.cases import random_logits
from tests.kernels.cases import needs_native
from torch_boc import kernels
from torch_boc.core.schema import QUANTITIES
from torch_boc.functional import bag_of_coins, boc_summary, log_p_value
from torch_boc.kernels import dispatch, operators, selftest
from torch_boc.kernels.triton import launch

FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")


@needs_native
def test_kernels_that_work_whatever_the_modes_of_the_caller():
    with NoHostSync(), torch.inference_mode():
        assert selftest.self_test("cpu") == ""


WRONG = {
    "columns": lambda real: lambda *x: [y * 1.01 if y.is_floating_point() else y for y in real(*x)],
    "log_tails": lambda real: lambda *x: tuple(y * 1.01 for y in real(*x)),
    "row_sums": lambda real: lambda *x: [y * 1.02 if y.is_floating_point() else y for y in real(*x)],
    "tally": lambda real: lambda *x: None,  # which counts nothing
    "martingale": lambda real: lambda *x: real(*x) * 1.01,
}


@needs_native
@pytest.mark.parametrize("name", WRONG)
def test_kernels_that_are_wrong(monkeypatch, name):
    monkeypatch.setattr(selftest, name, WRONG[name](getattr(selftest, name)))
    assert selftest.self_test("cpu").startswith("their results are off by")


def test_kernels_that_fail(monkeypatch):
    monkeypatch.setattr(selftest, "row_sums", Mock(side_effect=RuntimeError("no such device")))
    assert selftest.self_test("cpu") == "they failed: RuntimeError: no such device"


@pytest.fixture
def gpus(monkeypatch):
    """Two GPUs that are not here, the first of which is current and must not be asked."""
    state = {"capturing": False, "debug": 2, "devices": []}

    monkeypatch.setattr(selftest, "_results", {})
    monkeypatch.setattr(selftest, "_largest_error", lambda device: 0.0)
    for name, function in {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "current_device": Mock(side_effect=AssertionError("a context on the current device would be opened")),
        "device": lambda which: state["devices"].append(torch.device(which)) or nullcontext(),
        "is_current_stream_capturing": lambda: state["capturing"],
        "get_sync_debug_mode": lambda: state["debug"],
        "set_sync_debug_mode": lambda mode: state.update(debug={"default": 0}.get(mode, mode)),
    }.items():
        monkeypatch.setattr(torch.cuda, name, function)
    return state


def test_only_the_gpu_of_the_tensor_is_tested(gpus, monkeypatch, caplog):
    """The host may wait then, and what takes time is logged."""
    tried = []
    monkeypatch.setattr(selftest, "_largest_error", lambda device: tried.append((device, gpus["debug"])) or 0.0)
    with caplog.at_level(logging.INFO, logger="torch_boc"):
        assert [selftest.is_trusted(SECOND), selftest.is_trusted(SECOND)] == [True, True]
    assert tried == [("cuda:1", 0)]
    assert gpus["debug"] == 2
    assert set(gpus["devices"]) == {SECOND}
    assert len(caplog.messages) == 1
    assert "cuda:1: at first use Triton compiles and caches them" in caplog.messages[0]
    assert selftest.is_trusted(FIRST)
    assert tried[1:] == [("cuda:0", 0)]


def test_a_failure_is_remembered_and_warned_of_once(gpus, monkeypatch):
    monkeypatch.setattr(selftest, "_largest_error", lambda device: 0.5)
    with pytest.warns(UserWarning, match=r"operations instead of its kernels: .* are off by 0\.5") as warned:
        assert not selftest.is_trusted(SECOND)
    assert len(warned) == 1
    assert not selftest.is_trusted(SECOND)  # a second warning would be an error


@pytest.mark.parametrize(
    "fault", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("Triton Error [CUDA]: out of memory")]
)
def test_it_is_repeated_after_an_error_without_memory(gpus, monkeypatch, fault):
    monkeypatch.setattr(selftest, "_largest_error", Mock(side_effect=[fault, 0.0]))
    assert not selftest.is_trusted(SECOND)
    assert gpus["debug"] == 2
    assert selftest.is_trusted(SECOND)


def test_it_does_not_run_while_a_graph_is_captured(gpus):
    for capturing, trusted in ((True, False), (False, True), (True, True)):
        gpus["capturing"] = capturing
        assert selftest.is_trusted(SECOND) == trusted


def test_fake_tensors_of_a_machine_without_a_gpu_are_trusted(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert selftest.is_trusted(FIRST)
    assert selftest.is_trusted(torch.device("cuda"))


@pytest.mark.parametrize("trusted", [True, False])
def test_auto_heeds_the_result_of_its_device(monkeypatch, trusted):
    asked = []
    monkeypatch.setattr(dispatch, "available", lambda device: device == "meta")
    monkeypatch.setattr(dispatch, "is_trusted", lambda device: asked.append(device) or trusted)
    logits = torch.empty(2, 3, device="meta")
    assert (dispatch.choose_kernels(logits) is not None) == trusted
    assert asked == [logits.device]
    with kernels.use("triton"):
        assert dispatch.choose_kernels(logits) is not None


def test_a_capture_that_needs_a_new_kernel_gets_the_operations_of_torch(monkeypatch):
    """The rows may be known to the kernels, and what a later one makes of them not."""

    def not_loaded(*_):
        raise launch.NotLoadedError("expected kernels that ran before")

    names = ("columns", "log_tails", "tally", "martingale")
    kernel = SimpleNamespace(**dict.fromkeys(names, not_loaded))
    path = dispatch.KernelSet(kernel, frozenset(QUANTITIES), 1000, False)
    logits, target = random_logits(7, 5), torch.arange(7) % 5
    with kernels.use("torch"):
        expected, probed = boc_summary(logits, target), log_p_value(bag_of_coins(logits))
    monkeypatch.setattr(dispatch, "choose_kernels", lambda *_, **__: path)
    assert torch.equal(log_p_value(bag_of_coins(logits)), probed)
    assert boc_summary(logits, target) == expected
    monkeypatch.setattr(operators, "row_sums_backward", not_loaded)
    leaf = logits.clone().requires_grad_()
    bag_of_coins(leaf).gap.sum().backward()
    assert leaf.grad.isfinite().all()
    dispatch._chosen.set("triton")
    try:
        with pytest.raises(launch.NotLoadedError):
            log_p_value(bag_of_coins(logits))
    finally:
        dispatch._chosen.set("auto")


def test_missing_triton_is_logged_once(monkeypatch, caplog):
    monkeypatch.setattr(launch, "HAS_TRITON", False)
    launch._log_missing.cache_clear()
    with caplog.at_level(logging.INFO, logger="torch_boc"):
        assert [launch.available("cuda"), launch.available("cuda"), launch.available("cpu")] == [False] * 3
    assert caplog.messages == ["Triton is not installed: torch's own operations compute on a GPU, which is slower"]
