"""The zoo: what ships loads, is what its card says, and has the published numbers."""

import importlib.metadata
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import torch_boc.zoo.entry
from benchmarks.recipes.entries import save_entry
from torch_boc import zoo
from torch_boc.data.sets import LogitSet
from torch_boc.functional import auroc, boc_summary, scores
from torch_boc.zoo.entry import is_training

FOLDER = Path(zoo.__file__).parent
CARD_KEYS = {
    "name",
    "model",
    "checkpoint",
    "data",
    "sources",
    "arrays",
    "made_by",
    "made_on",
    "versions",
    "licence",
    "accuracy",
}


def all_sets(entry: zoo.Entry) -> list[LogitSet]:
    return [entry.id, *entry.ood.values(), *entry.calibration.values()]


@pytest.fixture(scope="module", params=zoo.names())
def entry(request: pytest.FixtureRequest) -> zoo.Entry:
    return zoo.load(request.param)


@pytest.fixture(scope="module")
def resnet20() -> zoo.Entry:
    return zoo.load("resnet20-cifar10")


@pytest.fixture(scope="module")
def minilm() -> zoo.Entry:
    return zoo.load("minilm-clinc150")


class TestEveryEntry:
    def test_sets_are_whole(self, entry):
        assert entry.id.target is not None
        assert entry.ood
        for data in all_sets(entry):
            assert data.logits.dtype == torch.float32
            assert data.logits.isfinite().all()
            assert data.num_classes == entry.id.num_classes
            torch.testing.assert_close(data.logits, data.logits.half().float(), rtol=0, atol=0)
            for column in data.columns.values():
                assert column.dtype == torch.float32
                assert column.std() > 0

    def test_calibration_splits_have_targets(self, entry):
        assert all(data.target is not None for data in entry.calibration.values())

    def test_card_says_where_the_logits_are_from(self, entry):
        assert set(entry.card) >= CARD_KEYS
        assert entry.card["name"] == entry.name
        assert entry.card["made_by"] == f"python -m benchmarks.recipes.zoo {entry.name}"
        assert set(entry.card["sources"]) == {data.name for data in all_sets(entry)}
        columns = {column for data in all_sets(entry) for column in data.columns}
        assert set(entry.card["arrays"]) == {"logits", "target", *columns}

    def test_card_has_the_numbers_of_the_logits(self, entry):
        summary = boc_summary(entry.id.logits, entry.id.target)
        for key, name in (("accuracy", "accuracy"), ("ece", "ece_confidence"), ("nll", "nll")):
            assert entry.card[key] == pytest.approx(summary[name].item(), abs=1e-6)
        described = {part["name"]: part for part in entry.card["sets"]}
        for data in all_sets(entry):
            part = described[data.name]
            assert part["samples"] == len(data)
            assert ("accuracy" in part) == (data.target is not None)
            if data.target is not None:
                accuracy = (data.logits.argmax(1) == data.target).double().mean().item()
                assert part["accuracy"] == pytest.approx(accuracy, abs=1e-6)

    def test_card_has_the_separation_of_the_scores(self, entry):
        for name, ood in entry.ood.items():
            for score, value in entry.card["auroc"][name].items():
                if score in scores:
                    pair = scores[score](entry.id.logits), scores[score](ood.logits)
                else:
                    pair = entry.id.columns[score], ood.columns[score]
                assert value == pytest.approx(auroc(*pair).item(), abs=1e-6)

    def test_held_out_halves_are_the_test_set(self, entry):
        first, second = entry.held_out()
        assert abs(len(first) - len(second)) <= 1
        assert first.name != second.name
        for whole, parts in (
            (entry.id.logits, (first.logits, second.logits)),
            (entry.id.target, (first.target, second.target)),
            *((column, (first.columns[name], second.columns[name])) for name, column in entry.id.columns.items()),
        ):
            torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=0)
        for half in (first, second):  # each has every class
            assert half.target.unique().numel() == entry.id.num_classes


class TestSplits:
    def test_the_first_is_honest(self):
        for name in zoo.names():
            entry = zoo.load(name)
            test, splits = entry.test_and_splits()
            first, *others = splits
            assert not is_training(first)
            assert set(entry.calibration) <= set(splits)
            halved = first == "held-out half"
            assert halved == all(map(is_training, entry.calibration))
            assert (test is entry.id) == (not halved)
            assert bool(others) == any(map(is_training, entry.calibration))

    def test_without_any_split(self):
        data = LogitSet(2 * torch.eye(4), torch.arange(4), name="test")
        test, splits = zoo.Entry("bare", {}, data, {}, {}).test_and_splits()
        assert torch.equal(test.logits, 2 * torch.eye(4)[2:])
        assert [(name, x.target.tolist()) for name, x in splits.items()] == [("held-out half", [0, 1])]


class TestResNet20:
    """Against the figures of an independent implementation on the same checkpoint and images."""

    def test_sets(self, resnet20):
        assert resnet20.id.logits.shape == (10000, 10)
        assert {name: len(data) for name, data in resnet20.ood.items()} == {"svhn": 26032}
        assert {name: len(data) for name, data in resnet20.calibration.items()} == {"training samples": 5000}
        for data in all_sets(resnet20):
            assert set(data.columns) == {"odin", "mahalanobis"}

    def test_calibration(self, resnet20):
        summary = boc_summary(resnet20.id.logits, resnet20.id.target)
        expected = {"accuracy": 0.9173, "ece_confidence": 0.0532, "nll": 0.3727, "brier_confidence": 0.0627}
        expected |= {"ece_dominance": 0.0790, "brier_dominance": 0.0791, "gap": 0.0261, "forced_gap": 0.0249}
        for name, value in expected.items():
            assert summary[name].item() == pytest.approx(value, abs=0.002), name

    def test_the_split_of_training_samples_leaks(self, resnet20):
        split = resnet20.calibration["training samples"]
        assert boc_summary(split.logits, split.target)["accuracy"].item() == pytest.approx(0.9976, abs=0.002)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("msp", 0.8907),
            ("energy", 0.8800),
            ("max_logit", 0.8813),
            ("logit_gap", 0.8812),
            ("structural_score", 0.1094),
            ("log_p_value", 0.8906),
            ("gap", 0.8907),
            ("dominance", 0.8908),
        ],
    )
    def test_separation(self, resnet20, name, value):
        pair = scores[name](resnet20.id.logits), scores[name](resnet20.ood["svhn"].logits)
        assert auroc(*pair).item() == pytest.approx(value, abs=0.002)

    @pytest.mark.parametrize(("column", "value"), [("odin", 0.8797), ("mahalanobis", 0.6721)])
    def test_separation_of_the_columns(self, resnet20, column, value):
        """Mahalanobis: the value of the formula in NumPy, float64, on the float32 logits."""
        pair = resnet20.id.columns[column], resnet20.ood["svhn"].columns[column]
        assert auroc(*pair).item() == pytest.approx(value, abs=0.001)


class TestMiniLM:
    """A review queue: validation requests to calibrate on, test requests, and requests that are out of scope."""

    def test_sets(self, minilm):
        assert minilm.id.logits.shape == (4500, 150)
        assert minilm.id.target.bincount().tolist() == [30] * 150
        assert {name: len(data) for name, data in minilm.ood.items()} == {"out-of-scope": 1000}
        assert minilm.ood["out-of-scope"].target is None
        assert {name: len(data) for name, data in minilm.calibration.items()} == {"validation": 3000}
        assert minilm.calibration["validation"].target.bincount().tolist() == [20] * 150

    def test_numbers(self, minilm):
        summary = boc_summary(minilm.id.logits, minilm.id.target)
        strange = boc_summary(minilm.ood["out-of-scope"].logits)
        expected = {"accuracy": 0.9658, "ece_confidence": 0.0199, "gap": 0.0531, "rejection_rate": 0.2696}
        for name, value in expected.items():
            assert summary[name].item() == pytest.approx(value, abs=0.002), name
        assert strange["gap"].item() == pytest.approx(0.6005, abs=0.002)
        assert summary["forced_gap"] > 0.99 * summary["gap"]

    @pytest.mark.parametrize(
        ("name", "area", "five", "one"), [("msp", 0.9709, 0.842, 0.587), ("energy", 0.9824, 0.907, 0.692)]
    )
    def test_ranks_among_validation_requests_keep_their_level(self, minilm, name, area, five, one):
        """The share flagged in scope is at most about the level; out of scope it is many times that."""
        held_out, known, strange = (
            scores[name](data.logits).double().numpy()
            for data in (minilm.calibration["validation"], minilm.id, minilm.ood["out-of-scope"])
        )
        assert auroc(*map(torch.from_numpy, (known, strange))).item() == pytest.approx(area, abs=0.002)
        for level, share in ((0.05, five), (0.01, one)):
            flagged = [(rank_p_values(held_out, x) <= level).mean() for x in (known, strange)]
            assert flagged[0] <= level + 0.01
            assert flagged[1] == pytest.approx(share, abs=0.005)


def rank_p_values(held_out: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Conformal p-values: the rank of each value among those that were held out."""
    return (np.searchsorted(np.sort(held_out), values, side="right") + 1) / (len(held_out) + 1)


class TestFiles:
    def test_every_card_has_its_arrays_and_no_more(self):
        for name in zoo.names():
            card = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
            expected = {
                f"{part['role']}/{part['name']}/{array}"
                for part in card["sets"]
                for array in ("logits", *part["columns"], *(["target"] if "accuracy" in part else []))
            }
            with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as arrays:
                assert set(arrays) == expected
                assert all(arrays[key].dtype == np.float16 for key in arrays if key.endswith("/logits"))
        assert {path.stem for path in FOLDER.glob("*.npz")} == set(zoo.names())

    def test_are_small(self):
        assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) < 5e6

    def test_name_no_folder_of_a_machine(self):
        for path in FOLDER.glob("*.json"):
            assert "/home" not in path.read_text(encoding="utf-8")
            assert "/work" not in path.read_text(encoding="utf-8")


class TestLoader:
    def test_names_are_sorted(self):
        assert "resnet20-cifar10" in zoo.names()
        assert list(zoo.names()) == sorted(zoo.names())

    @pytest.mark.parametrize("name", ["resnet50", "", "../zoo/resnet20-cifar10"])
    def test_unknown_name(self, name):
        with pytest.raises(ValueError, match=r"expected an entry among .*resnet20-cifar10.*, got "):
            zoo.load(name)

    def test_names_the_extra_without_numpy(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "numpy", None)
        with pytest.raises(ImportError, match=r"the zoo needs NumPy: pip install 'torch-boc\[eval\]'"):
            zoo.load("resnet20-cifar10")

    def test_new_entry_is_two_files(self, tmp_path):
        """Other set names, no columns of detectors in some, many classes: nothing is fixed to one model."""
        generator = torch.Generator().manual_seed(0)

        def logits(rows: int) -> torch.Tensor:
            return torch.randn(rows, 300, generator=generator).half().float()

        target = torch.arange(21) + 279
        sets = {
            "id": [LogitSet(logits(21), target, {"energy": torch.arange(21.0)}, "news test")],
            "ood": [LogitSet(logits(8), None, {"energy": torch.arange(8.0)}, "dbpedia"), LogitSet(logits(9), name="x")],
            "calibration": [LogitSet(logits(5), target[:5], name="validation")],
        }
        save_entry(tmp_path, "roberta-news", sets, {"model": "RoBERTa"})
        assert sorted(path.name for path in tmp_path.iterdir()) == ["roberta-news.json", "roberta-news.npz"]
        entry = torch_boc.zoo.entry.read_entry(tmp_path, "roberta-news")
        assert entry.card["model"] == "RoBERTa"
        assert entry.card["versions"]["torch"] == importlib.metadata.version("torch")
        for given, read in zip((x for group in sets.values() for x in group), all_sets(entry), strict=True):
            assert read.name == given.name
            torch.testing.assert_close(read.logits, given.logits, rtol=0, atol=0)
            assert (read.target is None) == (given.target is None)
            if given.target is not None:
                assert read.target.tolist() == given.target.tolist()
            assert {name: x.tolist() for name, x in read.columns.items()} == {
                name: x.tolist() for name, x in given.columns.items()
            }
        first, second = entry.held_out()
        assert (len(first), len(second)) == (10, 11)

    def test_refuses_what_it_could_not_read_again(self, tmp_path):
        data = LogitSet(2 * torch.eye(2), torch.tensor([0, 1]), name="a/b")
        with pytest.raises(ValueError, match="names without '/'"):
            save_entry(tmp_path, "x", {"id": [data]}, {})
        with pytest.raises(ValueError, match="expected finite logits"):  # too large for float16
            save_entry(tmp_path, "x", {"id": [LogitSet(1e6 * torch.eye(2), torch.tensor([0, 1]))]}, {})
        assert not list(tmp_path.iterdir())
