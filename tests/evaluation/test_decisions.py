"""Level and power of the conformal test: laws, SciPy, and the numbers of the zoo."""

import math
import warnings

import pytest
import torch
from scipy.stats import betabinom

from tests.data.cases import labelled, ood_logits
from tests.evaluation.cases import rows_of
from torch_boc.evaluation import LogitSet, evaluate
from torch_boc.evaluation.decisions import (
    STREAM_ID,
    TESTED_LEVELS,
    TESTED_SCORES,
    acceptance_rows,
    choose_held_out,
    screening_tables,
)
from torch_boc.evaluation.inputs import probe_set
from torch_boc.functional import bag_of_coins, compute_scores, p_value
from torch_boc.functional.conformal import excess_chance, threshold_rank
from torch_boc.nn import Acceptance, ConformalTest, DriftMonitor

FAST = {"replicates": 10, "methods": []}


def screened(test, *others, trusted=None, **options):
    arranged = choose_held_out(test, trusted or {}, options.get("seed", 42))
    found = screening_tables([probe_set(x) for x in (test, *others)], arranged, **options)
    return [rows_of(name, found[name]) for name in ("screening", "stream")]


def sets(samples=400):
    test = LogitSet(*labelled(samples), name="id")
    return test, LogitSet(ood_logits(samples), name="noise"), {"val": LogitSet(*labelled(samples, seed=9), name="val")}


SIZES = [(1, 5, 1, 9), (60, 1000, 50, 999), (7, 7, 3, 50), (9000, 9999, 500, 9999)]


@pytest.mark.parametrize(("flagged", "samples", "rank", "held_out"), SIZES)
def test_excess_chance_is_that_of_the_beta_binomial_law(flagged, samples, rank, held_out):
    found = excess_chance(flagged, samples, rank, held_out)
    assert found == pytest.approx(betabinom.sf(flagged - 1, samples, rank, held_out + 1 - rank), rel=1e-8, abs=1e-300)


def test_shares_are_those_of_the_test_itself():
    test, noise, trusted = sets()
    rows, _ = screened(test, noise, trusted=trusted)
    for row in (row for row in rows if row.test == "conformal"):
        made = ConformalTest(row.score).calibrate(trusted["val"].logits)
        flagged = made.flag({"id": test, "noise": noise}[row.set].logits, row.alpha)
        assert (row.flagged, row.samples, row.held_out) == (float(flagged.double().mean()), 400, "val")
        assert row.flagged_low < row.flagged < row.flagged_high or row.flagged == 0
        rates = made.threshold(row.alpha)
        expected = [float(rates.rate_quantile(chance)) for chance in (0.025, 0.975)]
        assert [row.rate_low, row.rate_high] == pytest.approx(expected)
        rank = threshold_rank(400, row.alpha)
        assert row.chance == excess_chance(int(flagged.sum()), 400, rank, 400)
    for row in (row for row in rows if row.test == "paper"):
        rejected = p_value(bag_of_coins({"id": test, "noise": noise}[row.set].logits)) <= row.alpha
        assert row.flagged == pytest.approx(float(rejected.double().mean()), abs=3e-3)
    assert {(row.test, row.score, row.alpha) for row in rows} == {
        *(("conformal", score, alpha) for score in TESTED_SCORES for alpha in TESTED_LEVELS),
        *(("paper", "", alpha) for alpha in TESTED_LEVELS),
    }


def test_tested_scores_do_not_depend_on_the_number_of_coin_flips():
    """`screening_tables` ranks numbers of the report's own flips among held-out ones of 100: they must be the same."""
    few, many = (compute_scores(ood_logits(50), TESTED_SCORES, trials=trials) for trials in (20, 100))
    assert all(torch.equal(few[score], many[score]) for score in TESTED_SCORES)


def test_without_a_split_two_halves_of_the_test_set_have_nothing_in_common():
    test, noise, _ = sets(401)
    made = choose_held_out(test, {}, seed=1)
    assert (len(made.held_out), len(made.tested), made.name) == (200, 201, "")
    both = torch.cat([made.held_out, test.logits[made.tested]])
    assert torch.equal(both.sort(0).values, test.logits.sort(0).values)
    assert not torch.equal(made.tested, choose_held_out(test, {}, seed=2).tested)
    rows, _ = screened(test, noise)
    assert {(row.samples, row.held_out_samples) for row in rows if row.kind == "id"} == {(201, 200)}


def test_sorted_files_do_not_break_the_halves():
    """The order of a file may be that of the scores: the first half would then not be like the second."""
    logits, target = labelled(2000)
    order = (logits.amax(1) - logits.mean(1)).sort().indices
    rows, _ = screened(LogitSet(logits[order], target[order], name="id"))
    assert all(row.chance > 0.001 for row in rows if row.test == "conformal")


def test_the_stream_is_that_of_a_monitor():
    test, noise, trusted = sets()
    _, stream = screened(test, noise, trusted=trusted, seed=3)
    assert [row.kind for row in stream] == ["id"] * STREAM_ID + ["ood"] * 200
    assert [row.sample for row in stream] == list(range(1, 501))
    monitor = DriftMonitor(ConformalTest().calibrate(trusted["val"].logits), stream[0].alpha, seed=3)
    known = test.logits[choose_held_out(test, trusted, 3).tested[:STREAM_ID]]
    assert [row.evidence for row in stream[:STREAM_ID]] == pytest.approx(monitor.update(known).tolist())
    assert stream[-1].evidence > math.log(100)
    # Each stream is counted from 1, also after one of another length.
    _, streams = screened(test, LogitSet(noise.logits[:70], name="few"), noise, trusted=trusted)
    assert [row.sample for row in streams] == [*range(1, 371), *range(1, 501)]


@pytest.mark.parametrize("halves", [False, True])
def test_what_may_go_out_is_what_is_accepted(halves):
    test, _, trusted = sets(3000)
    made = choose_held_out(test, {} if halves else trusted, 42)
    held_out = made.held_out, trusted["val"].target
    if halves:
        rest = torch.ones(3000, dtype=torch.bool).index_fill(0, made.tested, False)
        held_out = test.logits[rest], test.target[rest]
    accept, rows = Acceptance().calibrate(*held_out), rows_of("acceptance", acceptance_rows(probe_set(test), made))
    logits, target = test.logits[made.tested], test.target[made.tested]
    for row in rows:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mask, threshold = accept.accept(logits, row.error, 1 - row.probability), accept.threshold(row.error)
        wrong = (logits.argmax(-1) != target)[mask].double().mean()
        assert (row.accepted, row.threshold) == (float(mask.double().mean()), float(threshold.score))
        assert row.wrong == pytest.approx(float(wrong), nan_ok=True)
        assert row.accepted_low <= row.accepted <= row.accepted_high
    assert [row.error for row in rows] == [0.01, 0.02, 0.05]
    assert rows[-1].accepted > 0
    assert not list(acceptance_rows(probe_set(LogitSet(test.logits)), made))


def test_training_samples_are_not_used():
    logits, target = labelled(600)
    trained = (logits.flip(0) + 20 * torch.eye(logits.shape[1])[target.flip(0)], target.flip(0))
    for more, used in (({}, ""), ({"val": labelled(600, seed=9)}, "val")):
        with pytest.warns(UserWarning, match="is easier than the test set"):
            report = evaluate((logits, target), calibration={"fit": trained, **more}, **FAST)
        assert set(report.results.screening["held_out"]) == {used}
