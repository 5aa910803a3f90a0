"""Entries from models of the examples, on data as small as they can be."""

import csv
import json

import numpy as np
import pytest
import torch

from benchmarks.recipes import trained
from benchmarks.recipes.entries import save_entry
from benchmarks.recipes.intents import minilm_clinc150
from torch_boc.zoo.entry import read_entry


def save_checkpoint(classifier, path):
    hyper = dict(classifier.hparams)
    state = {"hyper_parameters": hyper, "state_dict": classifier.state_dict(), "epoch": 1, "global_step": 20}
    torch.save(state, path)


def images(folder, name, count):
    rng = np.random.default_rng(len(name))
    pixels = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    np.savez(folder / f"{name}.npz", x=pixels, y=np.arange(count) % 10)


def texts(folder, name, rows):
    with (folder / f"{name}.csv").open("w", newline="") as file:
        csv.writer(file).writerows((label + 1, "", text) for text, label in zip(*rows, strict=True))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(trained, "SPLIT", 30)
    monkeypatch.setattr(trained.example("common"), "HELD_OUT", 20)


@pytest.mark.usefixtures("small")
def test_vit(tmp_path):
    module = trained.example("lightning_vit_cifar10")
    torch.manual_seed(0)
    classifier = module.Classifier(1e-3, 32, 96, 1).eval()
    save_checkpoint(classifier, tmp_path / "best.ckpt")
    for name, count in (("cifar10_train", 120), ("cifar10_test", 24), ("svhn_test", 25)):
        images(tmp_path, name, count)
    sets, card = trained.vit_cifar10(tmp_path, tmp_path / "cache", tmp_path / "best.ckpt")
    save_entry(tmp_path / "zoo", "vit-cifar10", sets, card)
    entry = read_entry(tmp_path / "zoo", "vit-cifar10")
    assert (len(entry.id), len(entry.ood["svhn"]), entry.ood["svhn"].target) == (24, 25, None)
    assert {name: len(data) for name, data in entry.calibration.items()} == {"validation": 20, "training samples": 30}
    assert set(entry.id.columns) == {"odin", "mahalanobis"}
    assert entry.card["training"]["epochs"] == 2
    common = trained.example("common")
    with torch.inference_mode():
        first = common.Images(*common.read_images(tmp_path, "cifar10_test")).__getitems__([0, 1])[0]
        expected = classifier.model(first).logits
    torch.testing.assert_close(entry.id.logits[:2], expected, rtol=2e-3, atol=2e-3)


@pytest.mark.usefixtures("small")
def test_roberta(tmp_path, monkeypatch):
    module = trained.example("lightning_roberta_agnews")
    train = module.made_up(5040, seed=0)
    monkeypatch.setattr(module, "LENGTH", 24)
    tokenizer = module.train_tokenizer(train[0], 300)
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    torch.manual_seed(0)
    classifier = module.Classifier(1e-3, len(tokenizer), 32, 1).eval()
    save_checkpoint(classifier, tmp_path / "best.ckpt")
    texts(tmp_path, "train", train)
    texts(tmp_path, "test", module.made_up(24, seed=1))
    texts(tmp_path, "dbpedia", module.made_up(25, seed=2))
    sets, card = trained.roberta_agnews(tmp_path, tmp_path / "cache", tmp_path / "best.ckpt")
    assert [len(sets[role][0]) for role in ("id", "ood", "calibration")] == [24, 25, 5000]
    assert card["model"].startswith("compact RoBERTa")
    held_out, trained_on = ({tuple(row.tolist()) for row in data.logits[:30]} for data in sets["calibration"])
    assert held_out != trained_on
    alone = tokenizer([module.from_folder(tmp_path, "test")[0][3]], return_tensors="pt")
    with torch.inference_mode():
        expected = classifier.model(alone["input_ids"], alone["attention_mask"]).logits[0]
    torch.testing.assert_close(sets["id"][0].logits[3], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("encoder_lr", "how"), [(0.0, "frozen"), (1e-4, "fine-tuned")])
def test_minilm(tmp_path, encoder_lr, how):
    module = trained.example("lightning_minilm_clinc150")
    sizes = {"train": 60, "val": 12, "test": 24, "oos_test": 9}
    rows = {part: module.made_up(size, seed=size) for part, size in sizes.items()}
    names = ["a", "b", "c", "d"]
    published = {part: [[text, names[label]] for text, label in zip(*both, strict=True)] for part, both in rows.items()}
    published["oos_test"] = [[text, "oos"] for text, _ in published["oos_test"]]
    (tmp_path / "data_full.json").write_text(json.dumps(published))
    torch.manual_seed(0)
    tokenizer, encoder = module.tiny(rows["train"][0])
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    classifier = module.Classifier(0.1, encoder_lr, 4, **module.shape_of(encoder)).eval()
    save_checkpoint(classifier, tmp_path / "last.ckpt")
    sets, card = minilm_clinc150(tmp_path, tmp_path / "cache", tmp_path / "last.ckpt")
    assert [len(sets[role][0]) for role in ("id", "ood", "calibration")] == [24, 9, 12]
    order = torch.randperm(24, generator=torch.Generator().manual_seed(42)).tolist()
    assert sets["id"][0].target.tolist() == [rows["test"][1][place] for place in order]
    assert sets["ood"][0].target is None
    assert how in card["model"]
    assert ("--frozen" in card["trained_by"]) == ("in one run" not in card["settings"]) == (how == "frozen")
    alone = tokenizer([rows["test"][0][order[3]]], return_tensors="pt")
    with torch.inference_mode():
        expected = classifier.model(alone["input_ids"], alone["attention_mask"]).logits[0]
    torch.testing.assert_close(sets["id"][0].logits[3], expected, rtol=1e-4, atol=1e-5)
