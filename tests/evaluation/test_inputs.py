"""The least confident samples, what a review of them detects, and the classes that are wrong."""

import pytest
import torch

from tests.evaluation.cases import make_set, rows_of
from torch_boc.evaluation.decisions import SUSPICIOUS, choose_held_out, class_tables, review_rows, screening_tables
from torch_boc.evaluation.inputs import probe_set
from torch_boc.functional import bag_of_coins
from torch_boc.nn import ConformalTest


@pytest.fixture(scope="module")
def sets():
    data = make_set("id", 3000, 0), make_set("far", 2000, 1, 0.0, targets=False), make_set("few", 30, 2, 1.0)
    return [probe_set(x) for x in data]


def sample_rows(sets, arranged):
    return rows_of("samples", screening_tables(sets, arranged)["samples"])


def test_samples_are_those_with_the_lowest_log_odds_and_their_numbers_are_right(sets):
    held_out = make_set("held out", 500, 3)
    rows, test = sample_rows(sets, choose_held_out(sets[0].data, {"held out": held_out}, 42)), ConformalTest()
    test.calibrate(held_out.logits)
    for data in sets:
        mine = [row for row in rows if row.set == data.name]
        expected = data.scores["log_odds"].sort().values[:SUSPICIOUS]
        torch.testing.assert_close(torch.tensor([row.log_odds for row in mine], dtype=torch.float64), expected)
        logits = data.data.logits[[row.row for row in mine]]
        coins = bag_of_coins(logits.double())
        for name in ("confidence", "gap"):
            given = torch.tensor([getattr(row, name) for row in mine], dtype=torch.float64)
            torch.testing.assert_close(given, getattr(coins, name), rtol=1e-6, atol=1e-6)
        assert [row.prediction for row in mine] == coins.prediction.tolist()
        p_values = torch.tensor([row.p_value for row in mine], dtype=torch.float64)
        torch.testing.assert_close(p_values, test(logits), rtol=0, atol=0)


def test_a_sample_that_calibrated_the_test_has_no_p_value(sets):
    rows = sample_rows(sets, choose_held_out(sets[0].data, {}, 42))
    known = [row for row in rows if row.kind == "id"]
    share = sum(row.p_value != row.p_value for row in known) / len(known)
    assert 0.3 < share < 0.7  # a half of the test set
    assert all(row.p_value == row.p_value for row in rows if row.kind == "ood")


def test_a_person_who_sees_a_share_finds_what_is_below_the_threshold(sets):
    rows = rows_of("review", review_rows(sets))
    right = sets[0].correct
    for row in rows[::3]:
        data = next(x for x in sets if x.name == row.set)
        flagged = data.coins.confidence < row.threshold - 1e-12
        if row.kind == "ood":
            assert row.detected == pytest.approx(float(flagged.double().mean()), abs=1e-3)
        else:
            assert float(flagged.double().mean()) == pytest.approx(row.share, abs=1e-3)
            assert row.accuracy == pytest.approx(float(right[~flagged].double().mean()), abs=1e-3)
            assert row.detected == pytest.approx(float(flagged[~right].double().mean()), abs=2e-3)


def test_classes_and_confusions_are_counts(sets):
    classes, confusions = class_tables(sets[0], sets[0].coins.confidence / 2).values()
    prediction, target = sets[0].coins.prediction, sets[0].data.target
    for i, name in enumerate(classes["prediction"].tolist()):
        mine = prediction == name
        assert classes["samples"][i] == mine.sum()
        assert classes["precision"][i].item() == pytest.approx((target[mine] == name).double().mean().item())
        assert classes["calibrated"][i].item() == pytest.approx(classes["confidence"][i].item() / 2)
    for wrong, said, times in confusions.itertuples(index=False):
        assert times == int(((target == wrong) & (prediction == said)).sum())
        assert wrong != said
    assert confusions["samples"].tolist() == sorted(confusions["samples"].tolist(), reverse=True)
    assert class_tables(sets[1], None) == {"classes": (), "confusions": ()}
