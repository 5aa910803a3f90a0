"""The Lightning examples run without downloads and print what they logged."""

import csv
import importlib

import numpy as np
import pytest
import torch

from tests.examples.conftest import EXAMPLES, SCRIPT

EXAMPLES_AND_OOD = {
    "lightning_resnet_cifar10.py": "svhn",
    "lightning_vit_cifar10.py": "svhn",
    "lightning_roberta_agnews.py": "dbpedia",
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
def test_missing_data_is_explained(run, tmp_path):
    (tmp_path / "data").touch()  # no folder can be made here
    with pytest.raises(SystemExit, match=r"could not get CIFAR-10 and SVHN .*--smoke needs neither"):
        run("lightning_vit_cifar10.py", "--data-dir", tmp_path / "data")
