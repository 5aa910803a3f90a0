"""`torch-boc experiment`: all three from local stand-ins, and the one line that is said when something is missing."""

import json

import pytest
import torch

from tests.experiments import stand_ins
from tests.experiments.conftest import offline  # noqa: F401
from torch_boc.experiments import EXPERIMENTS, compute

COMMON = ("--cache", "cache", "--replicates", "5")


@pytest.fixture
def prepare(tmp_path):
    """Writes the stand-ins of an experiment; gives the options that point at them."""

    def write(name):
        if name == "roberta":
            stand_ins.write_texts(tmp_path / "data")
            stand_ins.write_roberta(tmp_path / "model")
        else:
            stand_ins.write_images(tmp_path / "data")
        if name == "vit":
            stand_ins.write_vit(tmp_path / "model")
        if name == "resnet":
            stand_ins.write_resnet(tmp_path / "model.pt")
        model = ("--checkpoint", "model.pt") if name == "resnet" else ("--model", "model")
        return (name, *model, "--data-dir", "data", *COMMON)

    return write


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_from_local_copies_to_json(run, prepare, monkeypatch, tmp_path, name):
    options = prepare(name)
    code, out, err = run("experiment", *options, "--json")
    assert (code, err) == (0, "")
    content = json.loads(out, parse_constant=pytest.fail)
    monkeypatch.setattr(compute, "load_model", pytest.fail)  # the second time, the model is not needed
    assert run("experiment", *options, "--json").out == out
    assert not (tmp_path / "boc-report").exists()
    ood = EXPERIMENTS[name].ood_name
    assert content["settings"]["samples"] == {"id": 40, ood: 30, "training samples": 20, "train": 180}
    assert (content["settings"]["seed"], content["settings"]["trials"]) == (42, 100)
    scores = set(content["tables"]["ood"]["score"])
    assert {"msp", "energy", "mahalanobis", "structural_score"} <= scores
    assert ("odin" in scores) == (name != "roberta")
    methods = set(content["tables"]["calibration"]["method"])
    assert {"temperature", "isotonic", "vector scaling"} <= methods


def test_a_quick_look_at_the_report(run, prepare, tmp_path):
    options = prepare("resnet")
    code, out, err = run("experiment", *options, "--samples", "15", "--train-samples", "12", "--trials", "20")
    assert (code, err) == (0, "")
    assert out.startswith("Bag of coins: ResNet-20 on CIFAR-10 against SVHN (model.pt)\n")
    assert "ODIN" in out
    assert {"report.html", "report.md", "roc.png"} <= {path.name for path in (tmp_path / "boc-report").iterdir()}
    settings = json.loads((tmp_path / "boc-report" / "report.json").read_text())["settings"]
    assert settings["samples"] == {"id": 15, "svhn": 15, "training samples": 15, "train": 12}
    assert settings["trials"] == 20


def test_an_interruption(run, prepare, monkeypatch, tmp_path):
    """What was computed is kept, and the next run computes the rest."""
    options, forward, calls = prepare("resnet"), compute._Work._forward, []

    def stop(self, batch):
        calls.append(batch.size)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return forward(self, batch)

    monkeypatch.setattr(compute._Work, "_forward", stop)
    assert run("experiment", *options) == (130, "", "torch-boc: interrupted\n")
    assert calls == [40, 30]
    assert not (tmp_path / "boc-report").exists()
    assert run("experiment", *options, "--json").code == 0
    assert calls == [40, 30, 30, 20, 180]


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("name", "what", "options"),
    [
        ("vit", "aaraki/vit-base-patch16-224-in21k-finetuned-cifar10", "--model FOLDER and --data-dir FOLDER"),
        ("resnet", "cifar10_resnet20-4118986f.pt", "--checkpoint FILE and --data-dir FOLDER"),
        ("roberta", "textattack/roberta-base-ag-news", "--model FOLDER and --data-dir FOLDER"),
    ],
)
def test_offline_without_a_model(run, name, what, options):
    code, out, err = run("experiment", name, *COMMON)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"torch-boc: error: could not fetch {what} ")
    assert err.endswith(f"; connect to the internet, or give local copies with {options}\n")


@pytest.mark.usefixtures("offline")
def test_offline_without_data(run, prepare):
    options = [x for x in prepare("resnet") if x not in ("--data-dir", "data")]
    code, out, err = run("experiment", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("torch-boc: error: could not fetch CIFAR-10 (")
    assert "--data-dir FOLDER" in err


def wrong_weights(folder):
    torch.save({"weight": torch.zeros(2)}, folder / "model.pt")


def another_number_of_classes(folder):
    stand_ins.write_resnet(folder / "model.pt", num_classes=7)


def no_data(folder):
    (folder / "data" / "test_32x32.mat").unlink()


def damaged_data(folder):
    (folder / "data" / "cifar-10-batches-py" / "data_batch_3").write_bytes(b"\x80\x02")


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (wrong_weights, "model.pt: expected the weights of a ResNet for CIFAR"),
        (another_number_of_classes, "model.pt: expected a model of 10 classes, got 7"),
        (no_data, "data: expected test_32x32.mat or svhn/test_32x32.mat or svhn_test.npz there"),
        (damaged_data, "data/cifar-10-batches-py/data_batch_3: expected a batch of CIFAR-10"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(run, prepare, tmp_path, harm, message):
    options = prepare("resnet")
    harm(tmp_path)
    code, out, err = run("experiment", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"torch-boc: error: {message}")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["bert"], "expected an experiment among vit, resnet, roberta, got 'bert'"),
        (["vit", "--device", "gpu"], "expected --device as one that torch can use here"),
        (["vit", "--checkpoint", "a.pt"], "expected --checkpoint for resnet alone"),
        (["resnet", "--checkpoint", "a.pt"], "a.pt: no such file"),
    ],
)
def test_wrong_options(run, args, message):
    code, out, err = run("experiment", *args, *COMMON)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"torch-boc: error: {message}")
