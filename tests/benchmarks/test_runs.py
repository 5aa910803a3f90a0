"""Each benchmark runs on sizes as small as they can be; its times mean nothing here."""

import sys
from importlib import import_module

import numpy as np
import pytest
import torch

from benchmarks import coverage, generation, known_truth, studies
from benchmarks.pieces import in_pieces
from benchmarks.recipes import trained
from benchmarks.recipes.entries import save_entry
from tests.transformers.cases import gpt2, prompts
from torch_boc.zoo.entry import read_entry


def once(contestants, *, seconds=0.0):
    """In the place of `best_times`: each contestant runs once."""
    for run in contestants.values():
        run()
    return dict.fromkeys(contestants, 1.0)


SMALL = {
    "probe": {"SHAPES": ((8, 10), (4, 1_000)), "SMALL": (), "LIMITS": {}, "linear_targets": list},
    "gradient": {"SHAPES": ((8, 10),)},
    "metric": {"SHAPES": ((8, 10),), "LARGE": ()},
    "conformal": {"ROWS": 200, "HELD_OUT": 200, "STREAM": 20},
    "predictor": {"resnet18": lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 10))},
    "evaluation": {},
}
ARGUMENTS = {"predictor": ["--output", "results.csv"], "evaluation": ["--output", "results.csv", "--samples", "200"]}


@pytest.mark.parametrize("name", SMALL)
def test_a_table_is_written(name, monkeypatch, tmp_path, capsys):
    module = import_module(f"benchmarks.{name}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *ARGUMENTS.get(name, [])])
    for attribute, value in {
        "best_times": once,
        "compiled": lambda run: run,
        "RESULTS": tmp_path,
        **SMALL[name],
    }.items():
        if hasattr(module, attribute):
            monkeypatch.setattr(module, attribute, value)
    module.main()
    for table in tmp_path.glob("*.csv"):
        assert len(table.read_text().splitlines()) > 2
    assert any(tmp_path.glob("*.csv"))


def test_recording(monkeypatch, capsys):
    """The recorder's own time is a share of that of `generate`."""
    monkeypatch.setattr(generation, "best_times", once)
    rows = generation.measure(gpt2().eval(), prompts((5, 5)), tokens=6, seconds=0.1)
    assert [row["ratio"].split(",")[0] for row in rows] == [
        "recorded / bare generate",
        "inside the recorder / bare generate",
        "bytes for each token",
    ]
    assert 0 < rows[1]["measured"] < 1


@pytest.mark.parametrize("spread", [1.0, 2.0])
def test_the_true_areas_of_the_simulation(spread):
    """Intervals are judged by truths, which very many samples confirm."""
    numbers = np.random.default_rng(0)
    known, unknown = known_truth.normals(0.9, spread).draw(20_000, 20_000, numbers)
    above = (known[:2_000, None] > unknown[None]).double().mean()
    assert known_truth.normals(0.9, spread).truth(0.5)["auroc"] == pytest.approx(0.9)
    assert float(above) == pytest.approx(0.9, abs=0.01)


def test_a_simulation_goes_on_where_it_stopped(monkeypatch, tmp_path, capsys):
    ran = []

    def study(n, repetitions):
        ran.append((n, repetitions))
        return [{"case": "a", "what": "b", "share": 1.0}]

    monkeypatch.setattr(coverage, "STUDIES", {"made up": studies.Study(study, (200, 1000))})
    path = tmp_path / "coverage.csv"
    monkeypatch.setattr(sys, "argv", ["coverage", "--scale", "0.01", "--output", str(path)])
    for n, repetitions in ((200, 7), (1000, 2)):
        old = {"study": "made up", "n": n, "repetitions": repetitions, "case": "a", "what": "b", "share": 0.5}
        coverage.save(path, [old])
    coverage.main()
    assert ran == [(1000, 3)]
    assert all(0 <= row["share"] <= 1 for row in studies.separation_study(200, 2))


def test_pieces_that_are_missing_or_damaged_are_computed(tmp_path):
    asked = []

    def compute(start, stop):
        asked.append(start)
        if asked == [0, 10]:
            raise KeyboardInterrupt
        return torch.arange(start, stop)

    with pytest.raises(KeyboardInterrupt):
        in_pieces(tmp_path, 25, compute, piece=10)
    assert torch.equal(in_pieces(tmp_path, 25, compute, piece=10), torch.arange(25))
    next(tmp_path.glob("0000020*")).write_bytes(b"damaged")
    assert torch.equal(in_pieces(tmp_path, 25, compute, piece=10), torch.arange(25))
    assert asked == [0, 10, 10, 20, 20]


def test_an_entry_of_the_zoo(monkeypatch, tmp_path):
    """From a checkpoint of an example and images to the files that `zoo.load` reads."""
    monkeypatch.setattr(trained, "SPLIT", 30)
    monkeypatch.setattr(trained.example("common"), "HELD_OUT", 20)
    torch.manual_seed(0)
    classifier = trained.example("lightning_vit_cifar10").Classifier(1e-3, 32, 96, 1).eval()
    state = {"hyper_parameters": dict(classifier.hparams), "state_dict": classifier.state_dict()}
    torch.save(state | {"epoch": 1, "global_step": 20}, tmp_path / "best.ckpt")
    for name, count in (("cifar10_train", 120), ("cifar10_test", 24), ("svhn_test", 25)):
        pixels = np.random.default_rng(count).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        np.savez(tmp_path / f"{name}.npz", x=pixels, y=np.arange(count) % 10)
    sets, card = trained.vit_cifar10(tmp_path, tmp_path / "cache", tmp_path / "best.ckpt")
    save_entry(tmp_path / "zoo", "vit-cifar10", sets, card)
    entry = read_entry(tmp_path / "zoo", "vit-cifar10")
    assert (len(entry.id), len(entry.ood["svhn"]), entry.ood["svhn"].target) == (24, 25, None)
    assert {name: len(data) for name, data in entry.calibration.items()} == {"validation": 20, "training samples": 30}
    common = trained.example("common")
    with torch.inference_mode():
        first = common.Images(*common.read_images(tmp_path, "cifar10_test")).__getitems__([0, 1])[0]
        torch.testing.assert_close(entry.id.logits[:2], classifier.model(first).logits, rtol=2e-3, atol=2e-3)
