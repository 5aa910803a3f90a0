"""The conformal test as a module: its p-values, flags and thresholds, and what is rejected."""

import math
import warnings

import pytest
import torch
from scipy.stats import false_discovery_control

from tests.functional.cases import random_logits
from torch_boc import ConformalTest, DriftMonitor
from torch_boc.functional import compute_scores, sample_stats
from torch_boc.functional.registry import unsaturated_scores
from torch_boc.functional.score_bins import STRATA

KINDS = {
    "plain": {},
    "energy": {"score": "energy"},
    "turned": {"score": "-msp"},
    "by class": {"groups": "prediction"},
    "by confidence": {"score": "concentration", "groups": "confidence"},
}
kinds = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())
# Groups with few held-out samples are not the point here.
pytestmark = pytest.mark.filterwarnings("ignore:nothing can be flagged in")


def held_out(rows=500, classes=5, **options):
    return random_logits(rows, classes, seed=1, **options)


def calibrated(rows=500, classes=5, **options):
    return ConformalTest(**options).calibrate(held_out(rows, classes))


def new(rows=60, classes=5, **options):
    return random_logits(rows, classes, seed=2, **options)


def sign_of(test):
    return -1 if test.scoring.score.startswith("-") else 1


@kinds
def test_p_values_are_the_ranks_of_scores(options):
    """By sorting: exact up to the places, so scores are compared that are far enough apart."""
    test = calibrated(**options, resolution=2**14)
    z, others, name = new(), held_out(), test.scoring.name
    own, known = (sign_of(test) * unsaturated_scores(x, [name])[name] for x in (z, others))
    same = torch.ones(len(z), len(others), dtype=torch.bool)
    if test.scoring.groups == "prediction":
        same = z.argmax(-1)[:, None] == others.argmax(-1)
    elif test.scoring.groups == "confidence":
        strata = [
            torch.bucketize(x.softmax(-1).amax(-1), torch.tensor(STRATA).double(), right=True) for x in (z, others)
        ]
        same = strata[0][:, None] == strata[1]
    below = (same & (known <= own[:, None])).sum(1)
    expected = (below + 1) / (same.sum(1) + 1).double()
    floor = 2 / (same.sum(1) + 1).double()  # a tie in a place may count one or two more
    assert ((test(z) - expected).abs() <= floor + 1e-12).all()


@kinds
def test_flags_are_scores_below_the_threshold(options):
    test = calibrated(rows=4000, **options)
    z = new(rows=500)
    for how in ({}, {"delta": 0.1}):
        threshold, flags = test.threshold(0.1, **how), test.flag(z, 0.1, **how)
        name, sign = test.scoring.name, sign_of(test)
        score = sign * compute_scores(z, [name])[name]
        group = test.bin_scores(z).group
        limit = threshold.score if group is None else threshold.score[group]
        # The places are those of float32, and so is what is compared.
        assert torch.equal(flags, score.float() < limit.float())
        assert flags.any()


@kinds
def test_discoveries_are_those_of_scipy(options):
    test = calibrated(rows=1000, **options)
    for scale in (0.02, 0.3, 1.0):
        z = torch.cat([new(200), scale * new(50)])
        z[3, 2] = math.nan
        p = test(z)
        adjusted = false_discovery_control(p[~p.isnan()].numpy())
        found = test.discoveries(z, 0.2)
        assert found[p.isnan()].all()
        assert torch.equal(found[~p.isnan()], torch.from_numpy(adjusted <= 0.2))


def test_smoothed_p_values_come_from_the_generator():
    test = calibrated(resolution=1)
    draws = [test.test(new(), smoothed=True, generator=torch.Generator().manual_seed(s)) for s in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert (draws[0] <= test(new())).all()


def test_rows_that_cannot_be_scored_have_no_p_value_and_are_flagged():
    test, z = calibrated(), new(4)
    z[1, 2], z[2, 0] = math.nan, math.inf
    assert test(z).isnan().tolist() == [False, True, True, False]
    assert test.flag(z, 0.05)[1:3].all()
    assert test.discoveries(z)[1:3].all()
    test.update(z)
    assert test.invalid == 2
    assert test.samples.tolist() == [502]
    with pytest.warns(match="2 held-out rows"):
        test.threshold(0.05)


@pytest.mark.parametrize("given", [False, True], ids=["logits", "scores"])
def test_groups_of_the_users_own_are_as_many_separate_tests(given):
    site, new_site = torch.arange(500) % 2, torch.arange(60) % 4 - 1
    known, z = ({"scores": x.amax(-1)} if given else {"logits": x} for x in (held_out() + site[:, None] * 0.3, new()))
    whole = ConformalTest(groups=2).calibrate(**known, group=site)
    p, flags = whole.test(**z, group=new_site), whole.flag(**z, alpha=0.1, group=new_site)
    for number in range(2):
        rows, here = ({name: x[s == number] for name, x in y.items()} for y, s in ((known, site), (z, new_site)))
        one = ConformalTest(resolution=64).calibrate(**rows)
        assert torch.equal(p[new_site == number], one.test(**here))
        assert torch.equal(flags[new_site == number], one.flag(**here, alpha=0.1))
        assert whole.threshold(0.1).score[number] == one.threshold(0.1).score
    unknown = (new_site < 0) | (new_site > 1)
    assert p[unknown].isnan().all()
    assert flags[unknown].all()
    assert whole.discoveries(**z, group=new_site)[unknown].all()
    monitor = DriftMonitor(whole)
    monitor.update(**z, group=new_site)
    assert (monitor.seen, monitor.skipped) == (60 - unknown.sum(), unknown.sum())


def test_any_shape_and_class_axis():
    test, z = calibrated(), new(12).reshape(3, 4, 5)
    for call in (test, test.flag, test.discoveries, test.update, ConformalTest().calibrate):
        with pytest.raises(ValueError, match=r"expected dim, .* dim=1 reads 4 classes .* and dim=-1 5 classes"):
            call(z)
    last, first = (ConformalTest(dim=dim).calibrate(held_out()) for dim in (-1, 1))
    assert torch.equal(last(z).flatten(), test(z.reshape(12, 5)))
    for name in ("test", "flag", "discoveries"):
        assert torch.equal(getattr(first, name)(z.movedim(-1, 1)), getattr(last, name)(z))
    assert last(z[:0]).shape == (0, 4)


def test_evidence_in_place_of_logits():
    by_logits, by_evidence = (ConformalTest("logit_gap", groups="confidence") for _ in range(2))
    logits, target = held_out(), torch.arange(500) % 5
    logits[7, 1] = math.nan
    by_evidence.update(sample_stats(logits, target, extras=True, ignore_index=3))
    by_logits.update(logits[target != 3])
    assert torch.equal(by_logits.counts, by_evidence.counts)
    assert by_logits.invalid == by_evidence.invalid == 1


@pytest.mark.parametrize("score", ["gen", "given", "-given"])
def test_scores_of_any_detector_in_place_of_logits(score):
    """They are ranked as the same numbers of a score of ours are; a test takes either all its life."""
    logits, others = held_out(), new()
    like = calibrated(score="-max_logit" if score == "-given" else "max_logit")
    test, again = (ConformalTest(score).calibrate(scores=logits.amax(-1)) for _ in range(2))
    assert torch.equal(test.test(scores=others.amax(-1).view(6, 10)), like.test(others).view(6, 10))
    assert torch.equal(test.flag(scores=others.amax(-1), alpha=0.1), like.flag(others, 0.1))
    assert torch.equal(test.discoveries(scores=others.amax(-1), fdr=0.5), like.discoveries(others, 0.5))
    assert test.threshold().score == like.threshold().score
    monitors = [DriftMonitor(x) for x in (test, like)]
    assert torch.equal(monitors[0].update(scores=others.amax(-1)), monitors[1].update(others))
    assert int(again.merge(test).samples) == 1000
    loaded = ConformalTest("-given" if score == "-given" else "given")
    loaded.load_state_dict(test.state_dict())
    assert torch.equal(loaded.test(scores=logits.amax(-1)), test.test(scores=logits.amax(-1)))


def test_too_few_held_out_samples_for_a_level():
    test = calibrated(rows=98)
    with pytest.warns(match=r"flagged at alpha=0\.01, which needs at least 99 held-out samples, got 98"):
        assert not test.flag(new(), 0.01).any()
    assert test.flag(new(), 0.01).shape == (60,)  # said once
    with pytest.warns(match=r"at alpha=0\.04 and delta=0\.01, which needs at least 113"):
        assert test.threshold(0.04, delta=0.01).score == -math.inf
    with pytest.warns(match=r"nothing can be flagged in [1-5] of 5 groups at alpha"):
        calibrated(rows=98, groups="prediction").flag(new(), 0.02)


def test_ties_that_leave_nothing_to_flag_are_said():
    """With a common offset of the logits, a score such as the energy has few different places."""
    test = ConformalTest("energy").calibrate(held_out(3000) + 1e5)
    with pytest.warns(
        match=r"far fewer than alpha=0\.05 of the samples are flagged, because many .*; resolution=16384"
    ):
        test.threshold(0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ConformalTest("energy").calibrate(held_out(3000)).threshold(0.05)
