"""Before "auto" relies on the kernels they are tried beside torch's operations; here by those in C++."""

import pytest
import torch

from tests.dispatch import NoHostSync
from torch_boc import kernels
from torch_boc.functional import bag_of_coins
from torch_boc.kernels import choice, trial

pytestmark = pytest.mark.filterwarnings("error")
REMAINS = "torch_boc computes by torch's own operations, not by its kernels: "


def test_kernels_that_work():
    assert trial.passes("cpu", "compiled")


def test_the_modes_of_a_caller_do_not_see_the_trial():
    with NoHostSync():
        assert trial.passes("cpu", "compiled")


def test_kernels_that_are_wrong(monkeypatch):
    monkeypatch.setattr(kernels, "coins", lambda odds, squares, classes: (odds * 1.01, odds))
    with pytest.warns(UserWarning, match=REMAINS + "their results are off by"):
        assert not trial.passes("cpu", "compiled")


def test_kernels_that_give_no_number(monkeypatch):
    monkeypatch.setattr(kernels, "coins", lambda odds, squares, classes: (odds * torch.nan, odds))
    with pytest.warns(UserWarning, match=REMAINS + "their results are off by nan"):
        assert not trial.passes("cpu", "compiled")


def test_kernels_that_fail():
    with pytest.warns(UserWarning, match=REMAINS + "they failed: RuntimeError: expected tensors on a GPU"):
        assert not trial.passes("cpu")


@pytest.mark.parametrize("trusted", [True, False])
def test_auto_heeds_the_trial(monkeypatch, trusted):
    monkeypatch.setattr(choice, "available", lambda device: device == "meta")
    monkeypatch.setattr(choice, "_is_trusted", lambda: trusted)
    assert choice._fuse("meta", torch.float32) is trusted
    with kernels.use("triton"):
        assert choice._fuse("meta", torch.float32)
    bag_of_coins(torch.zeros(2, 3))
