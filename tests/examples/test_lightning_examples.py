"""The Lightning examples run without downloads and print what they logged."""

import csv
import importlib
import json

import numpy as np
import pytest
import torch

from tests.examples.conftest import EXAMPLES, SCRIPT

EXAMPLES_AND_OOD = {
    "lightning_resnet_cifar10.py": "svhn",
    "lightning_vit_cifar10.py": "svhn",
    "lightning_roberta_agnews.py": "dbpedia",
    "lightning_minilm_clinc150.py": "out-of-scope",
}
INTENTS = {
    "train": [["what is my balance", "balance"], ["wake me at six", "alarm"], ["how much do i have", "balance"]],
    "val": [["set an alarm", "alarm"]],
    "test": [["my balance please", "balance"]],
    **{f"oos_{part}": [["who invented paper", "oos"]] for part in ("train", "val", "test")},
}


@SCRIPT
@pytest.mark.parametrize("name", EXAMPLES_AND_OOD)
def test_smoke(name, run, tmp_path):
    printed = run(name, "--smoke", "--output-dir", tmp_path)
    values = dict(line.split() for line in printed.splitlines() if line.startswith("val/boc/"))
    assert 0 < float(values["val/boc/gap"]) < 1
    assert 0 <= float(values[f"val/boc/{EXAMPLES_AND_OOD[name]}/msp_auroc"]) <= 1
    assert (tmp_path / "last.ckpt").exists()
    assert list(tmp_path.rglob("events.*"))
    assert list(tmp_path.rglob("metrics.csv"))


@SCRIPT
def test_resume_goes_on_after_the_last_epoch(run, tmp_path):
    common = ("--smoke", "--output-dir", tmp_path)
    run("lightning_roberta_agnews.py", *common, "--epochs", "1")
    run("lightning_roberta_agnews.py", *common, "--epochs", "2", "--resume")
    epochs = [set(read_column(path, "epoch")) for path in sorted(tmp_path.rglob("metrics.csv"))]
    assert epochs == [{"0"}, {"1"}]


def read_column(path, name):
    with path.open(newline="") as file:
        return [row[name] for row in csv.DictReader(file)]


def test_images_from_arrays(tmp_path, monkeypatch):
    """Held out images are not trained on; shifts and flips move pixels and change none."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    common = importlib.import_module("common")
    monkeypatch.setattr(common, "HELD_OUT", 6)
    pixels = np.arange(20, dtype=np.uint8)[:, None, None, None] * np.ones((1, 32, 32, 3), np.uint8) + 1
    for name in ("cifar10_train", "svhn_test"):
        np.savez(tmp_path / f"{name}.npz", x=pixels, y=np.arange(20) % 10)
    train, known, unknown = common.cifar_and_svhn(tmp_path)
    assert (len(train), len(known), len(unknown)) == (14, 6, 6)
    seen = [set(part.pixels[:, 0, 0, 0].tolist()) for part in (train, known)]
    assert not seen[0] & seen[1]
    assert len(seen[0] | seen[1]) == 20
    images, labels = train.__getitems__([3, 5])
    assert images.shape == (2, 3, 32, 32)
    assert labels.tolist() == train.labels[[3, 5]].tolist()
    ramp = torch.arange(2 * 3 * 32 * 32).reshape(2, 3, 32, 32) + 1
    moved = common.shifted_and_flipped(ramp)
    inside = moved > 0
    assert inside[:, :, 4:-4, 4:-4].all()
    assert set(moved[0][inside[0]].tolist()) <= set(ramp[0].flatten().tolist())


@SCRIPT
def test_a_frozen_encoder_keeps_its_weights(run, tmp_path):
    """The head learns, from embeddings; the encoder in the checkpoint is the one that the seed gives."""
    run("lightning_minilm_clinc150.py", "--smoke", "--frozen", "--epochs", 1, "--output-dir", tmp_path / "1")
    run("lightning_minilm_clinc150.py", "--smoke", "--frozen", "--epochs", 3, "--output-dir", tmp_path / "3")
    first, last = (torch.load(tmp_path / n / "last.ckpt", weights_only=True)["state_dict"] for n in ("1", "3"))
    same = {name for name in first if torch.equal(first[name], last[name])}
    assert {name for name in first if name not in same} == {"model.head.weight", "model.head.bias"}


def test_intents_of_the_published_file(tmp_path, monkeypatch):
    """Classes are the intents in alphabetical order; out-of-scope requests have no class of their own."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("lightning_minilm_clinc150")
    (tmp_path / "data_full.json").write_text(json.dumps(INTENTS))
    parts = example.read_intents(tmp_path)
    assert parts["train"] == (["what is my balance", "wake me at six", "how much do i have"], [1, 0, 1])
    assert (parts["test"], parts["oos_val"]) == ((["my balance please"], [1]), (["who invented paper"], [0]))


def test_batches_of_similar_lengths_hold_every_text_once(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("lightning_minilm_clinc150")
    lengths = torch.randint(3, 30, (203,), generator=torch.Generator().manual_seed(0))
    sampler = example.SimilarLengths([[0] * length for length in lengths.tolist()], 20)
    first, second = torch.tensor(list(sampler)), torch.tensor(list(sampler))
    assert first.tolist() != second.tolist()
    assert first.sort().values.tolist() == list(range(203))
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in first.split(20))
    assert padded < 1.2 * lengths.sum()


def test_embeddings_stand_for_the_tokens(monkeypatch):
    """A frozen encoder sees each text once: its logits are those of the whole model, whatever the padding."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("lightning_minilm_clinc150")
    texts = example.made_up(7, seed=0)
    torch.manual_seed(0)
    tokenizer, encoder = example.tiny(texts[0])
    model = example.Classifier(0.1, 0.0, 4, **example.shape_of(encoder)).model
    data = example.Encoded(tokenizer, texts)
    rows = example.embedded(model, data, batch=3)
    assert [row["labels"] for row in rows] == texts[1]
    stacked = torch.stack([row["embedding"] for row in rows])
    torch.testing.assert_close(stacked.norm(dim=1), torch.ones(7), rtol=1e-6, atol=0)
    whole = data.collate([data[i] for i in range(7)])
    logits = model.eval()(whole["input_ids"], whole["attention_mask"]).logits
    torch.testing.assert_close(model(embedding=stacked).logits, logits, rtol=1e-5, atol=1e-6)


@SCRIPT
def test_missing_intents_and_model_are_explained(run, tmp_path):
    with pytest.raises(SystemExit, match=r"expected .*data_full.json, got no such file: .*clinc/oos-eval.*--smoke"):
        run("lightning_minilm_clinc150.py", "--data-dir", tmp_path)
    (tmp_path / "data_full.json").write_text(json.dumps(INTENTS))
    with pytest.raises(SystemExit, match=r"could not get .*absent .*--model FOLDER"):
        run("lightning_minilm_clinc150.py", "--data-dir", tmp_path, "--model", tmp_path / "absent")


@SCRIPT
def test_missing_data_is_explained(run, tmp_path):
    (tmp_path / "data").touch()  # no folder can be made here
    with pytest.raises(SystemExit, match=r"could not get CIFAR-10 and SVHN .*--smoke needs neither"):
        run("lightning_vit_cifar10.py", "--data-dir", tmp_path / "data")
