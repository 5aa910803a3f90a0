"""Logits are those of the model, computed once, in pieces that survive an interruption."""

from contextlib import contextmanager
from functools import partial

import pytest
import torch

from tests.experiments import stand_ins
from torch_boc.evaluation import odin_scores
from torch_boc.experiments import EXPERIMENTS, compute, compute_logits, find_device, load_model, load_sets, run
from torch_boc.experiments.cache import PieceCache
from torch_boc.experiments.resnet import CifarResNet

RESNET, ROBERTA = EXPERIMENTS["resnet"], EXPERIMENTS["roberta"]


@pytest.fixture
def resnet(tmp_path):
    stand_ins.write_resnet(tmp_path / "weights.pt")
    return tmp_path / "weights.pt"


@pytest.fixture
def seen(monkeypatch):
    """The sizes of the batches that a ResNet has seen."""
    sizes, forward = [], CifarResNet.forward

    def counted(self, x):
        sizes.append(len(x))
        return forward(self, x)

    monkeypatch.setattr(CifarResNet, "forward", counted)
    return sizes


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(compute, "PieceCache", partial(PieceCache, piece=16))


def test_logits_and_odin_are_those_of_the_model(image_folder, resnet, tmp_path):
    sets = load_sets(RESNET, image_folder, samples=20)
    found = compute_logits(RESNET, resnet, sets, tmp_path / "cache", batch_size=7)
    classifier = load_model(RESNET, resnet)
    for role, part in zip(sets._fields, sets, strict=True):
        x = classifier.prepare(part.inputs)["x"]
        with torch.inference_mode():
            torch.testing.assert_close(found[role].logits, classifier.model(x), rtol=1e-4, atol=1e-4)
        assert (found[role].target is None) == (role == "ood")
        assert list(found[role].columns) == (["odin"] if role in ("id", "ood") else [])
    expected = odin_scores(classifier.model, classifier.prepare(sets.id.inputs)["x"], temperature=1000, epsilon=0.0014)
    torch.testing.assert_close(found["id"].columns["odin"], expected, rtol=1e-6, atol=1e-9)


def test_the_order_of_the_data_is_the_order_of_the_targets(text_folder, tmp_path):
    """A model whose classes have the data's names in another order gives logits in the data's order."""
    sets = load_sets(ROBERTA, text_folder)
    stand_ins.write_roberta(tmp_path / "plain")
    stand_ins.write_roberta(tmp_path / "named", names=("sci/tech", "world", "sports", "business"))
    plain, named = (compute_logits(ROBERTA, tmp_path / x, sets, tmp_path / "cache") for x in ("plain", "named"))
    assert torch.equal(named["id"].logits, plain["id"].logits[:, [1, 2, 3, 0]])


def test_the_second_time_nothing_is_loaded(image_folder, resnet, tmp_path, monkeypatch):
    sets = load_sets(RESNET, image_folder, samples=10)
    first = compute_logits(RESNET, resnet, sets, tmp_path / "cache")
    monkeypatch.setattr(compute, "load_model", pytest.fail)
    again = compute_logits(RESNET, resnet, sets, tmp_path / "cache", batch_size=3)
    for role in sets._fields:
        assert torch.equal(first[role].logits, again[role].logits)
    assert torch.equal(first["ood"].columns["odin"], again["ood"].columns["odin"])


def test_another_model_or_seed_is_computed_anew(image_folder, resnet, tmp_path, monkeypatch):
    compute_logits(RESNET, resnet, load_sets(RESNET, image_folder, samples=10), tmp_path / "cache")
    torch.save({"state_dict": torch.load(resnet)}, tmp_path / "other.pt")

    def fail(*args):
        raise LookupError

    monkeypatch.setattr(compute, "load_model", fail)
    for path, seed in ((tmp_path / "other.pt", 42), (resnet, 43)):
        sets = load_sets(RESNET, image_folder, samples=10, seed=seed)
        with pytest.raises(LookupError):
            compute_logits(RESNET, path, sets, tmp_path / "cache")


@pytest.mark.usefixtures("small_pieces")
def test_an_interrupted_run_computes_what_is_missing(image_folder, resnet, tmp_path, seen):
    """Stopped within the third piece of the first set, then run to the end: the first two are not computed again."""
    sets = load_sets(RESNET, image_folder)

    @contextmanager
    def stopping(what, total):
        def advance(rows):
            if sum(seen) > 2 * 16:
                raise KeyboardInterrupt

        yield advance

    with pytest.raises(KeyboardInterrupt):
        compute_logits(RESNET, resnet, sets, tmp_path / "cache", batch_size=8, bar=stopping)
    assert seen == [8] * 5
    compute_logits(RESNET, resnet, sets, tmp_path / "cache")
    logits = sum(map(len, sets))
    odin = 2 * (len(sets.id) + len(sets.ood))  # the gradient, then the score
    assert sum(seen) == 8 + logits + odin


@pytest.mark.usefixtures("small_pieces")
def test_a_longer_run_goes_on_where_a_shorter_one_ended(image_folder, resnet, tmp_path, seen):
    for samples in (16, 32):
        compute_logits(RESNET, resnet, load_sets(RESNET, image_folder, samples=samples), tmp_path / "cache")
    sets = load_sets(RESNET, image_folder, samples=32)
    assert [len(part) for part in sets] == [32, 30, 20, 32]
    # The calibration split and the OOD set end within a piece; nothing else is repeated.
    assert sum(seen) == sum(map(len, sets)) + 2 * (32 + 30)


def test_a_bar_is_told_of_every_sample(image_folder, resnet, tmp_path):
    told = {}

    @contextmanager
    def bar(what, total):
        told[what] = [total, 0]

        def advance(rows):
            told[what][1] += rows

        yield advance

    compute_logits(RESNET, resnet, load_sets(RESNET, image_folder, samples=10), tmp_path / "cache", bar=bar)
    assert told == {
        name: [10, 10]
        for name in (
            *("logits, cifar10_test", "ODIN, cifar10_test", "logits, svhn_test", "ODIN, svhn_test"),
            *("logits, training samples", "logits, train"),
        )
    }


def test_the_number_of_classes(image_folder, tmp_path):
    stand_ins.write_resnet(tmp_path / "weights.pt", num_classes=100)
    with pytest.raises(ValueError, match=r"weights\.pt: expected a model of 10 classes, got 100; resnet needs one"):
        compute_logits(RESNET, tmp_path / "weights.pt", load_sets(RESNET, image_folder), tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.npy"))


def test_labels_that_are_no_classes(tmp_path, text_folder):
    stand_ins.write_csv(text_folder / "ag_news_csv" / "test.csv", [(1, "a", "b"), (5, "a", "b")])
    with pytest.raises(ValueError, match="ag_news_test: expected 4 classes, labelled 0 to 3, got 0 to 4"):
        load_sets(ROBERTA, text_folder)
    (text_folder / "ag_news_csv" / "test.csv").write_text("")
    with pytest.raises(ValueError, match="ag_news_test: expected samples, got none"):
        load_sets(ROBERTA, text_folder)


def test_the_device():
    assert find_device("cpu") == torch.device("cpu")
    assert find_device().type == (torch.accelerator.current_accelerator(True) or torch.device("cpu")).type
    for name in ("gpu", "cuda:99"):
        with pytest.raises(ValueError, match=f"expected --device as one that torch can use here, .* got {name} "):
            find_device(name)


def test_all_in_one(text_folder, tmp_path):
    stand_ins.write_roberta(tmp_path / "roberta")
    report = run("roberta", model=str(tmp_path / "roberta"), data_dir=text_folder, cache=tmp_path, replicates=5)
    assert report.results.settings["samples"] == {"id": 40, "dbpedia": 30, "training samples": 20, "train": 180}
    assert "mahalanobis" in set(report.ood["score"])
    assert "odin" not in set(report.ood["score"])
    with pytest.raises(ValueError, match="expected an experiment among vit, resnet, roberta, got 'bert'"):
        run("bert")
