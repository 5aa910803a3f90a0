"""Check 2 finds a card that was touched, by mocks of torch.cuda."""

import pytest
import torch

from tests.selfcheck.cases import CARD, CPU, SECOND
from torch_boc.selfcheck import cards, cases


@pytest.fixture
def machine(monkeypatch):
    """A machine with some cards: how many, those with a context, and the memory of each."""
    state = {"count": 3, "contexts": set(), "memory": {}}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: state["count"])
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: state["memory"].get(index, 0))
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda i: i in state["contexts"], raising=False)
    return state


def test_the_other_cards(machine):
    assert cases.other_cards(torch.device("cuda", 1)) == [torch.device("cuda", 0), torch.device("cuda", 2)]


def test_a_card_is_touched_by_a_context_or_by_memory(machine):
    assert cards.touched(CARD) == []
    machine["contexts"] = {0, 2}
    machine["memory"] = {1: 512}
    assert cards.touched(CARD) == [1, 2]


@pytest.mark.parametrize(
    ("before", "after", "passed", "words"),
    [
        ([], [], True, "no other card"),
        ([], [0], False, "it touched the cards [0]"),
        ([0], [0], True, "no other card"),
        ([0], [0, 2], False, "it touched the cards [2]"),
    ],
)
def test_what_counts_is_what_torch_had_left_alone(before, after, passed, words):
    finding = cards.judge(before, after)
    assert finding.passed is passed
    assert words in finding.found
    assert bool(before) is ("[0]" in finding.note)


@pytest.mark.parametrize(("after", "status"), [([], "passed"), ([0], "failed")])
def test_a_new_process_computes_on_the_last_card(machine, monkeypatch, after, status):
    asked = []
    monkeypatch.setattr(cards, "in_processes", lambda *arguments: asked.append(arguments) or [[[], after]])
    assert cards.untouched(CARD).status == status
    assert asked == [(cards.use_one_card, 1, 2)]


def test_skips(machine):
    assert "this is the CPU" in cards.untouched(CPU).note
    machine["count"] = 1
    outcome = cards.untouched(CARD)
    assert outcome.status == "skipped"
    assert outcome.note == "needs a second card, and there is one only"


def test_what_the_process_does(machine, monkeypatch):
    """Every part that could open a context runs; here on the CPU, and a part that touches card 2 is found."""
    monkeypatch.setattr(cards.torch, "device", lambda *_: CPU)
    monkeypatch.setattr(cards, "other_cards", lambda device: [SECOND])
    assert cards.use_one_card(0, "", 0) == [[], []]

    class Opens(cards.BoCMetric):
        def update(self, *batch):
            machine["contexts"].add(1)
            super().update(*batch)

    monkeypatch.setattr(cards, "BoCMetric", Opens)
    assert cards.use_one_card(0, "", 0) == [[], [1]]
