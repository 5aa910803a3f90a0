"""The simulation: its truths are right, it goes on where it stopped, and its studies count."""

import csv
import sys

import pytest

from benchmarks import coverage
from benchmarks.known_truth import network, normals, one_bad_bin
from benchmarks.studies import STUDIES, Count, Study, null_sentences, separation_study
from torch_boc.evaluation.intervals import random_numbers
from torch_boc.evaluation.separation import rank_scores, separate
from torch_boc.functional import bag_of_coins
from torch_boc.functional.summary import calibration_error


@pytest.mark.parametrize("population", [network("vit-cifar10", 1.15), one_bad_bin("vit-cifar10")])
def test_the_true_error_is_that_of_very_many_samples(population):
    logits, target = population.draw(400_000, random_numbers(0, "many"))
    coins, everything = bag_of_coins(logits), bag_of_coins(population.logits)
    truth = population.true_error(everything.confidence, everything.prediction)
    assert 0.01 < truth < 0.04
    assert calibration_error(coins.confidence, coins.prediction == target) == pytest.approx(truth, abs=0.002)


@pytest.mark.parametrize("spread", [1.0, 2.0])
def test_the_true_areas_are_those_of_very_many_samples(spread):
    scores = normals(0.9, spread)
    found = separate(*map(rank_scores, scores.draw(200_000, 100_000, random_numbers(0, "many"))))
    truth = scores.truth(0.5)
    assert truth["auroc"] == pytest.approx(0.9)
    for name, value in truth.items():
        assert getattr(found, name) == pytest.approx(value, abs=0.01), name


def test_counts_tell_above_from_below():
    count = Count("case", "what", 0.5)
    for ends in ((0.4, 0.6), (0.5, 0.5), (0.6, 0.7), (0.1, 0.2)):
        count.add(*ends)
    row = count.row()
    assert (row["share"], row["above"], row["below"], row["truth"]) == (0.5, 0.25, 0.25, 0.5)


def test_a_run_goes_on_where_it_stopped(monkeypatch, tmp_path, capsys):
    ran = []

    def study(n, repetitions):
        ran.append((n, repetitions))
        return [{"case": "a", "what": "b", "share": 1.0}]

    monkeypatch.setattr(coverage, "STUDIES", {"made up": Study(study, (200, 1000))})
    path = tmp_path / "coverage.csv"
    monkeypatch.setattr(sys, "argv", ["coverage", "--scale", "0.01", "--output", str(path)])
    for n, repetitions in ((200, 7), (1000, 2)):
        old = {"study": "made up", "n": n, "repetitions": repetitions, "case": "a", "what": "b", "share": 0.5}
        coverage.save(path, [old])
    coverage.main()
    assert ran == [(1000, 3)]
    with path.open() as file:
        assert [row["share"] for row in csv.DictReader(file)] == ["0.5", "1.0"]
    assert "made up, n = 1,000, 3 repetitions" in capsys.readouterr().out


def test_studies_give_rows():
    assert set(STUDIES) == {
        "separation",
        "calibration",
        "sentences of calibration",
        "sentences of ten sets",
        "beyond confidence",
    }
    rows = separation_study(200, 2) + null_sentences(200, 2)
    assert {row["what"] for row in rows} >= {"auroc", "fpr95", "aupr", "says “adds something”"}
    assert all(0 <= row["share"] <= 1 for row in rows)
