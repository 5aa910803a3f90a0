"""Single samples and thresholds for the page to explore: which there are, and that their numbers are right."""

import pytest
import torch

from tests.evaluation.cases import make_set
from torch_boc.evaluation.samples import probe_set
from torch_boc.evaluation.screening import SUSPICIOUS, arrange, sample_rows
from torch_boc.evaluation.separation import ScoredSets, alarm_rows, collect_scores
from torch_boc.functional import bag_of_coins
from torch_boc.functional.registry import scores
from torch_boc.nn import ConformalTest


@pytest.fixture(scope="module")
def sets():
    data = make_set("id", 3000, 0), make_set("far", 2000, 1, 0.0, targets=False), make_set("few", 30, 2, 1.0)
    return [probe_set(x) for x in data]


@pytest.fixture(scope="module")
def held_out():
    return make_set("held out", 500, 3)


@pytest.fixture(scope="module")
def rows(sets, held_out):
    return sample_rows(sets, arrange(sets[0].data, {"held out": held_out}, 42))


def test_the_most_suspicious_are_those_with_the_lowest_log_odds(rows, sets):
    for data in sets:
        first = [row for row in rows if row.set == data.name and row.suspicious]
        expected = data.scores["log_odds"].sort().values[:SUSPICIOUS]
        torch.testing.assert_close(torch.tensor([row.log_odds for row in first], dtype=torch.float64), expected)
        p_values = [row.p_value for row in first]
        assert p_values == sorted(p_values)


def test_the_numbers_are_those_of_the_logits(rows, sets, held_out):
    test = ConformalTest("log_odds").calibrate(held_out.logits)
    for data in sets:
        mine = [row for row in rows if row.set == data.name]
        logits = data.data.logits[[row.row for row in mine]]
        coins = bag_of_coins(logits.double())
        for name in ("confidence", "gap", "concentration"):
            given = torch.tensor([getattr(row, name) for row in mine], dtype=torch.float64)
            torch.testing.assert_close(given, getattr(coins, name), rtol=1e-6, atol=1e-6)
        assert [row.prediction for row in mine] == coins.prediction.tolist()
        p_values = torch.tensor([row.p_value for row in mine], dtype=torch.float64)
        torch.testing.assert_close(p_values, test(logits), rtol=0, atol=0)


def test_a_sample_that_calibrated_the_test_has_no_p_value(sets):
    rows = sample_rows(sets, arrange(sets[0].data, {}, 42))
    known = [row for row in rows if row.set == "id"]
    share = sum(row.p_value != row.p_value for row in known) / len(known)
    assert 0.4 < share < 0.6  # a half of the test set
    assert all(row.p_value == row.p_value for row in rows if row.kind == "ood")


def test_shares_below_each_threshold_are_those_of_the_scores(sets):
    found = collect_scores(sets)
    rows = alarm_rows(found)
    assert {row.score for row in rows} == {name for name, score in scores.items() if not score.upside_down}
    for score in found:
        for row in [row for row in rows if row.score == score.name][::7]:
            below = (score.value(score.sets[row.set]) < row.threshold).double().mean()
            assert row.flagged == pytest.approx(float(below), abs=1e-12)


def test_ties_give_each_threshold_once():
    score = ScoredSets("column", "column", {"id": torch.tensor([1.0] * 50 + [2.0] * 50), "far": torch.ones(10)})
    rows = alarm_rows([score])
    assert [(row.set, row.threshold, row.flagged) for row in rows] == [
        ("id", 1.0, 0.0),
        ("id", 2.0, 0.5),
        ("far", 1.0, 0.0),
        ("far", 2.0, 1.0),
    ]
