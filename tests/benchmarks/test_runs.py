"""Each benchmark runs on sizes as small as they can be; its times mean nothing here."""

import sys
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import decisions, gpu, known_truth
from benchmarks.pieces import in_pieces
from torch_boc import ConformalTest


def once(contestants, *, seconds=0.0):
    """Instead of `best_times`: each contestant runs once."""
    for run in contestants.values():
        run()
    return dict.fromkeys(contestants, 1.0)


SHAPES = ((8, 10), (4, 1_000))
SMALL = {
    "probe": {"SHAPES": SHAPES, "FIGURE": (*SHAPES, SHAPES[0]), "SMALL": (), "LIMITS": {}, "linear_targets": list},
    "gradient": {"SHAPES": ((8, 10),)},
    "metric": {"SHAPES": ((8, 10),), "LARGE": ()},
    "conformal": {"ROWS": 200, "HELD_OUT": 200, "STREAM": 20},
    "predictor": {"resnet18": lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 10))},
}
ARGUMENTS = {"predictor": ["--seconds", "0.01", "--output", "results.csv"]}


@pytest.mark.parametrize("name", SMALL)
def test_a_table_is_written(name, monkeypatch, tmp_path, capsys):
    module = import_module(f"benchmarks.{name}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *ARGUMENTS.get(name, [])])
    small = {"best_times": once, "compiled": lambda run: run, "RESULTS": tmp_path, **SMALL[name]}
    for attribute, value in small.items():
        if hasattr(module, attribute):
            monkeypatch.setattr(module, attribute, value)
    module.main()
    for table in tmp_path.glob("*.csv"):
        assert len(table.read_text().splitlines()) > 2
    assert any(tmp_path.glob("*.csv"))


def test_the_page_of_decisions_can_make_its_tests():
    for options in decisions.TESTS.values():
        ConformalTest(**options)


@pytest.mark.parametrize("spread", [1.0, 2.0])
def test_the_true_areas_of_the_simulation(spread):
    """Intervals are judged by truths, which very many samples confirm."""
    numbers = np.random.default_rng(0)
    id_scores, ood_scores = known_truth.normals(0.9, spread).draw(20_000, 20_000, numbers)
    above = (id_scores[:2_000, None] > ood_scores[None]).double().mean()
    assert known_truth.normals(0.9, spread).truth(0.5)["auroc"] == pytest.approx(0.9)
    assert float(above) == pytest.approx(0.9, abs=0.01)


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


def test_the_table_of_a_gpu(monkeypatch):
    """Here the clock is that of the CPU."""
    event = SimpleNamespace(record=lambda: None, elapsed_time=lambda end: 1.0)
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: event)
    monkeypatch.setattr(gpu, "time_call", lambda run: (run(), (2e-6, 1e-6))[1])
    for name, value in {"ROUNDS": 1, "CACHES": 0, "ROWS": 4200}.items():
        monkeypatch.setattr(gpu, name, value)
    lines = gpu.time_shape(20, 10, torch.bfloat16, torch.device("cpu"))
    assert [line.split(" | ")[1] for line in lines] == [*gpu.make_calls(20, 10, torch.device("cpu"))]
    assert lines[2] == "| 20 × 10 bfloat16 | coins | 2 | 1.00 | 1.00 | 1 |"
    assert gpu.predictor_share(torch.device("cpu")).startswith("BoCPredictor, 4,200 rows through 9 layers of 2,048: ")
