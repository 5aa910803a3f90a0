"""Check 8 passes on the CPU, and finds tables that were read too early."""

from contextlib import nullcontext

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.selfcheck.cases import CARD, CPU, SECOND
from torch_boc.selfcheck import splitting


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(splitting, "SAMPLES", 40)


def test_both_halves_on_the_cpu():
    outcome = splitting.split(CPU)
    assert outcome.status == "passed"
    assert outcome.note == splitting.ALL_ON_CPU
    assert outcome.details == {"cpu to cpu": 0.0}


def too_early(table):
    return table | {"gap": torch.where(table["index"] >= 32, 0.0, table["gap"])}


def no_number(table):
    return table | {"energy": table["energy"] * torch.nan}


def lost(table):
    return {name: x[:-1] for name, x in table.items()}


@pytest.mark.parametrize("spoil", [too_early, no_number, lost])
def test_a_wrong_table(monkeypatch, spoil):
    class Wrong(splitting.BoCPredictor):
        made = 0

        def predict(self, inputs):
            Wrong.made += 1
            for table in super().predict(inputs):
                yield table if Wrong.made == 1 else spoil(table)

    monkeypatch.setattr(splitting, "BoCPredictor", Wrong)
    assert splitting.split(CPU).status == "failed"


@pytest.mark.parametrize(("others", "second", "note"), [([SECOND], "cuda:1", ""), ([], "cpu", splitting.ONE_CARD)])
def test_which_devices(monkeypatch, others, second, note):
    pairs = []
    monkeypatch.setattr(splitting, "other_cards", lambda device: others)
    monkeypatch.setattr(splitting, "table", lambda *pair: pairs.append(pair) or {"gap": torch.zeros(2)})
    outcome = splitting.split(CARD)
    assert (outcome.status, outcome.note) == ("passed", note)
    other = torch.device(second)
    assert pairs == [(CPU, CPU), (CARD, other), (other, CARD)]


def test_the_second_half_is_late_on_a_gpu(monkeypatch):
    slept = []
    monkeypatch.setattr(torch.cuda, "_sleep", slept.append)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    with FakeTensorMode():
        logits = splitting.Halves(CPU, CARD)(torch.zeros(3, 16, dtype=torch.float64))
    assert logits.device.type == "cuda"
    assert logits.shape == (3, 50)
    assert slept == [splitting.SLEEP]
