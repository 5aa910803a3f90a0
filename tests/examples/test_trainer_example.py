"""The example runs as it stands, and on local files with a local model."""

import csv
import sys

import pytest
import torch

from examples import trainer_roberta_agnews as example
from torch_boc.functional.summary import SHORT_KEYS


@pytest.fixture(autouse=True)
def _same_threads_afterwards():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_smoke(capsys):
    results = example.main(["--smoke"])
    printed = capsys.readouterr().out
    for key in SHORT_KEYS:
        assert f"\neval_boc_{key} " in printed
    assert results["eval_accuracy"] > 0.9
    assert 0 < results["eval_boc_free_gap"] < results["eval_boc_gap"]


def test_local_files(tmp_path):
    texts, labels = example.made_up(50, seed=2)
    for split in ("train", "test"):
        with (tmp_path / f"{split}.csv").open("w", newline="") as file:
            rows = [(label + 1, *text.split(": ")) for text, label in zip(texts, labels, strict=True)]
            csv.writer(file).writerows([("Class Index", "Title", "Description"), *rows])
    for part in example.tiny_roberta(texts):
        part.save_pretrained(tmp_path / "model")
    folders = ["--data-dir", str(tmp_path), "--model", str(tmp_path / "model"), "--output-dir", str(tmp_path / "out")]
    results = example.main([*folders, "--epochs", "0", "--batch-size", "8"])
    assert 0 < results["eval_boc_gap"] < 1


def test_without_the_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(SystemExit, match="--data-dir"):
        example.main([])
