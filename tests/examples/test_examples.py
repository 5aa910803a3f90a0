"""The examples run without downloads, on models and data as small as they can be."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
import torch

from tests.examples.conftest import EXAMPLES, SCRIPT

pytestmark = SCRIPT
OOD = {
    "lightning_resnet_cifar10.py": "svhn",
    "lightning_vit_cifar10.py": "svhn",
    "lightning_roberta_agnews.py": "dbpedia",
    "lightning_minilm_clinc150.py": "out-of-scope",
}


@pytest.mark.parametrize("name", OOD)
def test_lightning(name, run, tmp_path):
    printed = run(name, "--smoke", "--output-dir", tmp_path)
    values = dict(line.split() for line in printed.splitlines() if line.startswith("val/boc/"))
    assert 0 < float(values["val/boc/gap"]) < 1
    assert 0 <= float(values[f"val/boc/{OOD[name]}/msp_auroc"]) <= 1
    assert (tmp_path / "last.ckpt").exists()


@pytest.mark.parametrize("name", ["lightning_roberta_agnews.py", "trainer_roberta_agnews.py"])
def test_texts_that_are_missing(name, tmp_path):
    command = [sys.executable, str(EXAMPLES / name), "--data-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=EXAMPLES.parent, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "train.csv, got no such file; put the texts there (class, title, text), and give the folder" in done.stderr


def test_live_digits(run, tmp_path):
    """The first and the last epoch of each network, on a terminal of 80 columns, a page of each, and the figure."""
    printed = run("live_digits.py", "--epochs", "3", "--out", tmp_path, "--figure", tmp_path / "live.png")
    lines = [line for line in printed.splitlines() if " ood/gap_auroc " in line]
    epochs = [line.split() for line in lines]
    assert [(row[0], row[1]) for row in epochs] == [(name, n) for name in ("ResNet", "ViT") for n in "13"]
    assert all(0 < float(row[row.index("gap") + 1]) < 1 for row in epochs)
    assert float(epochs[1][3]) > 0.8, "the ResNet learns"
    assert max(map(len, lines)) <= 80
    assert all("Epoch 3 of 3" in (tmp_path / name / "boc.html").read_text() for name in ("ResNet", "ViT"))
    assert (tmp_path / "live.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_goes_on_after_its_last_epoch(run, tmp_path):
    for options in (("--epochs", "1"), ("--epochs", "2", "--resume")):
        run("lightning_roberta_agnews.py", "--smoke", "--output-dir", tmp_path, *options)
    epochs = []
    for path in sorted(tmp_path.rglob("metrics.csv")):
        with path.open(newline="") as file:
            epochs.append({row["epoch"] for row in csv.DictReader(file)})
    assert epochs == [{"0"}, {"1"}]


def test_a_frozen_encoder_keeps_its_weights(run, tmp_path):
    """The head learns, from embeddings; the encoder in the checkpoint is the one that the seed gives."""
    for epochs in ("1", "3"):
        options = ("--smoke", "--frozen", "--epochs", epochs, "--output-dir", tmp_path / epochs)
        run("lightning_minilm_clinc150.py", *options)
    first, last = (torch.load(tmp_path / n / "last.ckpt", weights_only=True)["state_dict"] for n in ("1", "3"))
    assert {name for name in first if not torch.equal(first[name], last[name])} == {
        "model.head.weight",
        "model.head.bias",
    }


SCRIPTS = {
    "batch_inference.py": ("highest concentration", "--output", "noise.parquet"),
    "generate_with_coherence.py": ("mean_lost_coins", "-o", "trace.html"),
    "metric_in_plain_loop.py": ("dominance_auroc",),
    "trainer_roberta_agnews.py": ("\neval_boc_gap ",),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts(name, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed, *options = SCRIPTS[name]
    assert printed in run(name, "--smoke", *options)
    assert all(Path(file).stat().st_size > 1000 for file in options[1:])


@pytest.mark.parametrize("engine", ["pyspark", "daft"])
def test_other_engines(engine, tmp_path):
    """Where they are installed, in a process of its own, whose workers find this copy of the package."""
    pytest.importorskip(engine)
    script = EXAMPLES / f"{engine.removeprefix('py')}_batch_inference.py"
    command = [sys.executable, str(script), "--rows", "100", "--output", str(tmp_path / "rows")]
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent), "DO_NOT_TRACK": "true"}
    subprocess.run(command, env=environment, timeout=300, check=True)
    table = parquet.read_table(tmp_path / "rows").sort_by("path")
    assert table["path"].to_pylist() == [f"{i:04}.png" for i in range(100)]
