"""The zoo: what ships loads, is what its card says, and has the published numbers."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.recipes.entries import save_entry
from torch_boc import zoo
from torch_boc.data.logit_set import LogitSet
from torch_boc.functional import auroc, boc_summary, scores
from torch_boc.functional.registry import unsaturated_scores
from torch_boc.zoo.entry import is_training, read_entry

FOLDER = Path(zoo.__file__).parent
ORIGIN = ("name", "model", "checkpoint", "data", "sources", "arrays", "made_by", "made_on", "versions", "licence")


def all_sets(entry):
    return [entry.id, *entry.ood.values(), *entry.calibration.values()]


@pytest.fixture(scope="module", params=zoo.names())
def entry(request):
    return zoo.load(request.param)


def test_sets_are_whole_and_described(entry):
    card, sets = entry.card, all_sets(entry)
    assert set(card) >= set(ORIGIN)
    assert (card["name"], card["made_by"]) == (entry.name, f"python -m benchmarks.recipes.zoo {entry.name}")
    assert set(card["sources"]) == {data.name for data in sets}
    assert set(card["arrays"]) == {"logits", "target", *(column for data in sets for column in data.columns)}
    assert entry.id.target is not None
    assert all(data.target is not None for data in entry.calibration.values())
    described = {part["name"]: part for part in card["sets"]}
    for data in sets:
        assert data.logits.dtype == torch.float32
        assert data.logits.isfinite().all()
        assert data.num_classes == entry.id.num_classes == len(set(data.classes))
        assert torch.equal(data.logits, data.logits.half().float())
        assert all(column.std() > 0 for column in data.columns.values())
        assert described[data.name]["samples"] == len(data)
        if data.target is not None:
            accuracy = (data.logits.argmax(1) == data.target).double().mean().item()
            assert described[data.name]["accuracy"] == pytest.approx(accuracy, abs=1e-6)


def test_the_card_has_the_numbers_of_the_logits(entry):
    summary = boc_summary(entry.id.logits, entry.id.target)
    for key in ("accuracy", "ece", "nll"):
        assert entry.card[key] == pytest.approx(summary[key].item(), abs=1e-6)
    for name, ood in entry.ood.items():
        for score, value in entry.card["auroc"][name].items():
            pair = (entry.id, ood)
            own = score not in scores
            found = [x.columns[score] if own else unsaturated_scores(x.logits, [score])[score] for x in pair]
            assert value == pytest.approx(auroc(*found).item(), abs=1e-6)


def test_the_first_split_is_honest(entry):
    test, splits = entry.test_and_splits()
    first, *others = splits
    assert not is_training(first)
    assert set(entry.calibration) <= set(splits)
    assert bool(others) == any(map(is_training, entry.calibration))
    assert (first == "held-out half") == (test is not entry.id) == all(map(is_training, entry.calibration))
    halves = entry.held_out()
    assert halves[0].classes == halves[1].classes == entry.card["classes"]
    assert abs(len(halves[0]) - len(halves[1])) <= 1
    assert torch.equal(torch.cat([half.logits for half in halves]), entry.id.logits)
    assert torch.equal(torch.cat([half.target for half in halves]), entry.id.target)
    assert all(half.target.unique().numel() == entry.id.num_classes for half in halves)


def test_files_have_what_their_cards_list_and_name_no_folder_of_a_machine():
    for name in zoo.names():
        text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
        expected = {
            f"{part['role']}/{part['name']}/{array}"
            for part in json.loads(text)["sets"]
            for array in ("logits", *part["columns"], *(["target"] if "accuracy" in part else []))
        }
        with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as arrays:
            assert set(arrays) == expected
        assert "/home" not in text
    assert {path.stem for path in FOLDER.glob("*.npz")} == set(zoo.names())
    assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) < 5e6


def test_what_cannot_be_loaded(monkeypatch):
    for name in ("resnet50", "../zoo/resnet20-cifar10"):
        with pytest.raises(ValueError, match=r"expected an entry among .*resnet20-cifar10.*, got "):
            zoo.load(name)
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ImportError, match=r"the zoo needs NumPy: pip install 'torch-boc\[eval\]'"):
        zoo.load("resnet20-cifar10")


def test_a_new_entry_is_two_files(tmp_path):
    """Other set names, no columns in some: nothing is fixed to one model."""
    logits, target = torch.randn(21, 300).half().float(), torch.arange(21) + 279
    sets = {
        "id": [LogitSet(logits, target, {"energy": torch.arange(21.0)}, "news test")],
        "ood": [LogitSet(logits[:8], None, {"energy": torch.arange(8.0)}, "dbpedia"), LogitSet(logits[8:], name="x")],
        "calibration": [],
    }
    save_entry(tmp_path, "roberta-news", sets, {"model": "RoBERTa"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["roberta-news.json", "roberta-news.npz"]
    entry = read_entry(tmp_path, "roberta-news")
    assert entry.card["model"] == "RoBERTa"
    for given, read in zip((x for group in sets.values() for x in group), all_sets(entry), strict=True):
        assert read.name == given.name
        assert torch.equal(read.logits, given.logits)
        assert (read.target is None) == (given.target is None)
        torch.testing.assert_close(read.columns, given.columns, rtol=0, atol=0)
    test, splits = entry.test_and_splits()
    assert (len(test), [(name, len(x)) for name, x in splits.items()]) == (11, [("held-out half", 10)])
    with pytest.raises(ValueError, match="names without '/'"):
        save_entry(tmp_path, "y", {"id": [LogitSet(2 * torch.eye(2), torch.tensor([0, 1]), name="a/b")]}, {})
