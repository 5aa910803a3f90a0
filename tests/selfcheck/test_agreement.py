"""Check 1 passes with kernels that are right, and finds every kind of wrong result."""

import os
import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.kernels.cases import needs_native
from tests.selfcheck.cases import CARD, CPU, is_reference
from torch_boc.kernels import choice
from torch_boc.kernels.cpu import calls
from torch_boc.kernels.triton.launch import HAS_TRITON
from torch_boc.selfcheck import agreement

FEW = (agreement.Case(16, 10), agreement.Case(8, 40, torch.bfloat16))


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(agreement, "CASES", FEW)
    monkeypatch.setattr(agreement, "fast_path", lambda device: "auto")


class Turned(torch.autograd.Function):
    """The same values with a gradient that is slightly too large."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * 1.1


def wrong_loss(coins):
    return coins._replace(loss=coins.loss * (1 + 1e-4))


def no_number(coins):
    return coins._replace(odds=torch.where(torch.arange(len(coins.odds)) == 5, torch.nan, coins.odds))


def a_number_for_nan(coins):
    return coins._replace(concentration=coins.concentration.nan_to_num(0.5))


def wrong_class(coins):
    return coins._replace(prediction=coins.prediction.roll(1))


def test_all_is_well():
    outcome = agreement.results(CPU)
    assert outcome.status == "passed", outcome
    assert not outcome.warnings
    assert len(outcome.details["errors"]) == len(agreement.CASES)
    assert all("gradient" in errors for errors in outcome.details["errors"].values())


@pytest.mark.parametrize("spoil", [wrong_loss, no_number, a_number_for_nan, wrong_class])
def test_wrong_coins(few, monkeypatch, spoil):
    right = agreement.bag_of_coins
    monkeypatch.setattr(agreement, "bag_of_coins", lambda z: right(z) if is_reference(z) else spoil(right(z)))
    outcome = agreement.results(CPU)
    assert outcome.status == "failed"
    assert outcome.details["too large"]


def test_a_wrong_gradient(few, monkeypatch):
    right = agreement.bag_of_coins
    monkeypatch.setattr(agreement, "bag_of_coins", lambda z: right(z if is_reference(z) else Turned.apply(z)))
    outcome = agreement.results(CPU)
    assert outcome.status == "failed"
    assert {text.split(",")[0] for text in outcome.details["too large"]} == {"gradient"}


@pytest.mark.parametrize("name", agreement.COLUMNS)
def test_a_wrong_column(few, monkeypatch, name):
    right = agreement.sample_columns

    def columns(z, **options):
        found = right(z, **options)
        return found if is_reference(z) else found | {name: found[name] * 1.001 + 1e-3}

    monkeypatch.setattr(agreement, "sample_columns", columns)
    outcome = agreement.results(CPU)
    assert outcome.status == "failed"
    assert f"column {name}" in outcome.found


@pytest.mark.parametrize("name", agreement.MEANS)
def test_a_wrong_metric(few, monkeypatch, name):
    class Wrong(agreement.BoCMetric):
        def update(self, preds, target):
            self.spoiled = not is_reference(preds)
            super().update(preds, target)

        def compute(self):
            found = super().compute()
            return found | {name: found[name] + 1e-3} if self.spoiled else found

    monkeypatch.setattr(agreement, "BoCMetric", Wrong)
    outcome = agreement.results(CPU)
    assert outcome.status == "failed"
    assert "metric" in outcome.found


def test_a_wrong_tail(few, monkeypatch):
    right = agreement.log_p_value
    monkeypatch.setattr(
        agreement, "log_p_value", lambda coins: right(coins) * (1 if is_reference(coins.odds) else 1 + 1e-7)
    )
    outcome = agreement.results(CPU)
    assert outcome.status == "failed"
    assert "log_p_value" in outcome.found


@needs_native
def test_a_wrong_kernel(monkeypatch):
    right = calls.row_sums

    def wrong(logits, extras):
        prediction, top, odds, *rest = right(logits, extras)
        return [prediction, top, odds * 1.001, *rest]

    monkeypatch.setattr(agreement, "CASES", FEW)
    assert agreement.results(CPU).status == "passed"
    for module in [x for name, x in sys.modules.items() if name.startswith("torch_boc.kernels")]:
        for name in [name for name, value in vars(module).items() if value is right]:
            monkeypatch.setattr(module, name, wrong)
    outcome = agreement.results(CPU)
    assert outcome.status == "failed"
    assert "path native" in outcome.found


INTERPRETED = """
import torch
from torch_boc.selfcheck import agreement
agreement.fast_path = lambda device: "triton"
outcome = agreement.results(torch.device("cpu"))
print(outcome.status, outcome.found)
"""


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
def test_the_kernels_of_a_gpu_in_the_interpreter():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-c", INTERPRETED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("passed"), done.stdout + done.stderr
    assert "path triton" in done.stdout


def test_kernels_that_auto_does_not_trust(few, monkeypatch):
    monkeypatch.setattr(agreement, "is_trusted", lambda device: False)
    outcome = agreement.results(CPU)
    assert outcome.status == "failed"
    assert "does not trust the kernels" in outcome.found


@pytest.mark.parametrize("works", [True, False])
def test_trust_is_that_of_the_trial(monkeypatch, works):
    monkeypatch.setattr(choice, "is_trusted", lambda *_: works)
    monkeypatch.setattr(choice, "available", lambda device: True)
    with FakeTensorMode():
        assert agreement.is_trusted(CARD) is works
    assert agreement.is_trusted(CPU)


@pytest.mark.parametrize(("there", "path"), [(True, "native"), (False, "torch")])
def test_the_kernels_of_the_device(monkeypatch, there, path):
    monkeypatch.setattr(agreement.library, "available", lambda: there)
    assert agreement.fast_path(CARD) == "triton"
    assert agreement.fast_path(CPU) == path
