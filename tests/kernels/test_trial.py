"""Before "auto" relies on the kernels they are tried beside torch's operations; here by those in C++."""

import pytest
import torch

from tests.dispatch import NoHostSync
from tests.kernels.cases import needs_native
from torch_boc import kernels
from torch_boc.kernels import choice, trial

pytestmark = needs_native
REMAINS = "torch_boc computes by torch's own operations, not by its kernels: "


def test_kernels_that_work():
    assert trial.passes("cpu")


def test_the_modes_of_a_caller_do_not_see_the_trial():
    with NoHostSync():
        assert trial.passes("cpu")


def test_kernels_that_are_wrong(monkeypatch):
    monkeypatch.setattr(trial, "coins", lambda odds, *rest: (odds * 1.01, odds, odds))
    with pytest.warns(UserWarning, match=REMAINS + "their results are off by"):
        assert not trial.passes("cpu")


def test_kernels_that_give_no_number(monkeypatch):
    monkeypatch.setattr(trial, "coins", lambda odds, *rest: (odds * torch.nan, odds, odds))
    with pytest.warns(UserWarning, match=REMAINS + "their results are off by nan"):
        assert not trial.passes("cpu")


def test_kernels_that_fail(monkeypatch):
    def fail(*_):
        raise RuntimeError("no such device")

    monkeypatch.setattr(trial, "row_sums", fail)
    with pytest.warns(UserWarning, match=REMAINS + "they failed: RuntimeError: no such device"):
        assert not trial.passes("cpu")


@pytest.mark.parametrize("works", [True, False])
def test_one_trial_for_each_device_and_none_while_a_graph_is_captured(monkeypatch, works):
    held, state = [], {"device": 0, "capturing": True}
    monkeypatch.setattr(trial, "_results", {})
    monkeypatch.setattr(trial, "passes", lambda device: held.append(state["device"]) or works)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: state["device"])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state["capturing"])
    assert not trial.is_trusted()
    assert not held
    state["capturing"] = False
    assert [trial.is_trusted(), trial.is_trusted()] == [works, works]
    state["device"] = 1
    assert trial.is_trusted() is works
    assert held == [0, 1]


@pytest.mark.parametrize("trusted", [True, False])
def test_auto_heeds_the_trial(monkeypatch, trusted):
    monkeypatch.setattr(choice, "available", lambda device: device == "meta")
    monkeypatch.setattr(choice, "is_trusted", lambda: trusted)
    logits = torch.empty(2, 3, device="meta")
    assert choice.decide(logits)[:2] == (trusted, trusted)
    with kernels.use("triton"):
        assert choice.decide(logits)[:2] == (True, True)
