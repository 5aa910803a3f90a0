"""Intervals of 95 % hold what they should, on samples whose truth is known; `benchmarks.coverage` asks at length."""

import pytest
import torch

from benchmarks.guarantees import few_errors_study
from benchmarks.known_truth import BINS, Normals, network, normals, one_bad_bin
from torch_boc.evaluation.calibration import CalibratedSamples, calibration_rows
from torch_boc.evaluation.detection import rank_scores, separate, separation_intervals
from torch_boc.evaluation.intervals import random_numbers

POPULATIONS = {
    "perfect": lambda: network("vit-cifar10", 1.0),
    "nearly": lambda: network("vit-cifar10", 1.15),
    "one bad bin": lambda: one_bad_bin("vit-cifar10"),
}


@pytest.mark.parametrize(("samples", "runs"), [(200, 80), (1000, 50), (5000, 25)])
@pytest.mark.parametrize("name", POPULATIONS)
def test_the_interval_of_the_calibration_error(name, samples, runs):
    population, numbers, hits = POPULATIONS[name](), random_numbers(0, "coverage"), 0
    truth = population.true_error(*population.logits.softmax(-1).max(-1))
    for _ in range(runs):
        logits, target = population.draw(samples, numbers)
        confidence, prediction = logits.softmax(-1).max(-1)
        row, _ = calibration_rows(
            CalibratedSamples(confidence, prediction == target, torch.zeros(samples).double()), BINS, 100, numbers
        )
        hits += row["ece_low"] <= truth <= row["ece_high"]
    assert hits >= 0.9 * runs


def test_the_interval_of_the_calibration_error_where_few_are_on_a_side():
    """Without the binomial end, the bootstrap covers .16 to .65 here; `benchmarks.coverage` counts more of them."""
    for row in few_errors_study(100, 200):
        assert row["share"] >= 0.985 - 3 * (0.985 * 0.015 / 200) ** 0.5, row
    sure = CalibratedSamples(torch.ones(500).double(), torch.ones(500) > 0, torch.zeros(500).double())
    row, _ = calibration_rows(sure, BINS, 50, random_numbers(0, "sure"))
    assert (row["ece"], row["ece_low"], row["ece_high"]) == (0, 0, pytest.approx(1 - 0.025 ** (1 / 500)))


@pytest.mark.parametrize("spread", [1.0, 2.0])
@pytest.mark.parametrize("sizes", [(200, 200), (3000, 150), (150, 3000)])
def test_intervals_of_nearly_perfect_separation(sizes, spread):
    scores, numbers, found = normals(0.9998, spread), random_numbers(0, "coverage", str(sizes)), []
    for _ in range(60):
        pair = tuple(map(rank_scores, scores.draw(*sizes, numbers)))
        found.append(separation_intervals(separate(*pair), *pair, 100, numbers, cells=128))
    for name, value in scores.truth(sizes[1] / sizes[0]).items():
        ends = [x[name] for x in found]
        assert sum(low <= value <= high for low, high in ends) >= 57, name
        assert all(low < high for low, high in ends), name


def test_perfect_separation_is_not_certain():
    """Nothing on the wrong side: the bound is Clopper and Pearson's for 0 of 200."""
    pair = tuple(map(rank_scores, Normals(30.0).draw(200, 250, random_numbers(0, "apart"))))
    found = separation_intervals(separate(*pair), *pair, 50, random_numbers(0, "draws"))
    assert found["auroc"] == pytest.approx((0.025 ** (1 / 200), 1.0))
    assert found["fpr95"] == pytest.approx((0.0, 1 - 0.025 ** (1 / 250)))
    assert 0.9 < found["aupr"][0] < found["aupr"][1] == 1.0
