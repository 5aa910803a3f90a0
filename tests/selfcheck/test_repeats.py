"""Check 5 finds one bit that differs in one of the repeats."""

import pytest
import torch

from tests.selfcheck.cases import CPU
from torch_boc.selfcheck import repeats


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(repeats, "SHAPES", {"cpu": (20, 10)})


def test_all_bits_are_the_same():
    outcome = repeats.repeats(CPU)
    assert outcome.status == "passed"
    assert outcome.found == "all bits are the same"


def test_one_bit_of_the_coins(monkeypatch):
    right, calls = repeats.bag_of_coins, []

    def unsteady(logits):
        calls.append(logits)
        coins = right(logits)
        off = torch.where(torch.arange(len(coins.odds)) == 7, 2.0**-23, 0.0) if len(calls) == 17 else 0.0
        return coins._replace(free_gap=coins.free_gap * (1 + off))

    monkeypatch.setattr(repeats, "bag_of_coins", unsteady)
    outcome = repeats.repeats(CPU)
    assert len(calls) == 50
    assert outcome.status == "failed"
    assert outcome.details == {"repeats that differ": {"coins.free_gap": 1}}


def test_sums_that_are_added_in_another_order(monkeypatch):
    class Unsteady(repeats.CoherenceGap):
        made = 0

        def update(self, preds):
            Unsteady.made += 1
            for part in preds.split(7 + Unsteady.made % 2):
                super().update(part)

    monkeypatch.setattr(repeats, "CoherenceGap", Unsteady)
    outcome = repeats.repeats(CPU)
    assert outcome.status == "failed"
    assert "CoherenceGap in 25" in outcome.found


def test_bits():
    nan, zero = torch.tensor([torch.nan, 1.0]), torch.tensor([0.0])
    assert repeats.same_bits(nan, nan.clone())
    assert not repeats.same_bits(zero, -zero)
    assert not repeats.same_bits(torch.tensor(1.0), torch.tensor(1.0 + 2**-23))
    assert repeats.same_bits(torch.arange(6).view(2, 3).T, torch.arange(6).view(2, 3).T.contiguous())
