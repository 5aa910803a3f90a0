"""What is beyond confidence: known answers by construction, direct sums, invariances, and sets that are too small."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from tests.data.cases import labelled, unfamiliar
from torch_boc.evaluation.beyond import BESIDE, QUANTITIES, beyond_confidence
from torch_boc.evaluation.models import KNOTS, features_of, model_scores
from torch_boc.evaluation.separation import paired_difference, rank_scores, separate
from torch_boc.evaluation.strata import confidence_strata, interval_within, pairs_within, separate_within
from torch_boc.functional import auroc, bag_of_coins, free_gap
from torch_boc.report.results import SPLINE

ALPHA = {"even": 5.0, "concentrated": 0.5}


def made(samples, rivals, *, doubt=-1.0, spread=1.0, classes=6, seed=0):
    """Logits whose odds are logistic normal around `doubt`, and whose rivals share them evenly or not."""
    generator = torch.Generator().manual_seed(seed)
    odds = torch.sigmoid(doubt + spread * torch.randn(samples, 1, generator=generator, dtype=torch.float64))
    alpha = torch.full((samples, classes - 1), ALPHA[rivals], dtype=torch.float64)
    shares = torch._standard_gamma(alpha, generator=generator).clamp_min(1e-12)
    shares = shares / shares.sum(1, keepdim=True)
    return torch.cat([torch.zeros(samples, 1, dtype=torch.float64), (odds * shares).log()], 1)


def row(table, how, what):
    (found,) = table[(table["how"] == how) & (table["what"] == what)].to_dict("records")
    return found


@pytest.fixture(scope="module")
def informative():
    """The same confidences, but strange samples have concentrated rivals."""
    return beyond_confidence(made(3000, "even", seed=1), made(4000, "concentrated", seed=2), replicates=200)


@pytest.fixture(scope="module")
def uninformative():
    """Strange samples are less confident, and that is all."""
    known, strange = made(3000, "even", doubt=-2.0, seed=3), made(4000, "even", doubt=-0.5, seed=4)
    return beyond_confidence(known, strange, replicates=200)


def test_rows_and_columns(informative):
    how = ["alone"] * 6 + ["strata"] * 6 + ["model"] * 9
    assert informative["how"].tolist() == how
    known = [*QUANTITIES, *BESIDE]
    both = ["energy_concentration", "gen_concentration"]
    assert informative["what"].tolist() == [*known, *known, "confidence", SPLINE, *known[1:], *both]
    added = [name for name in informative if name.startswith("versus_without")]
    assert informative.drop(columns=added).notna().all(axis=None)
    assert informative[added].notna().all(axis=1).equals(informative["what"].isin(both))
    assert (informative["auroc_low"] <= informative["auroc"]).all()
    assert (informative["auroc"] <= informative["auroc_high"]).all()
    assert informative["pairs"].iloc[0] == 3000 * 4000


def test_fewer_ways_and_quantities_give_the_same_rows(informative):
    sets = made(3000, "even", seed=1), made(4000, "concentrated", seed=2)
    some = beyond_confidence(*sets, how=["model"], what=["concentration"], beside=[], replicates=200)
    wanted = informative["what"].isin(["confidence", SPLINE, "concentration"]) & (informative["how"] == "model")
    pd.testing.assert_frame_equal(some, informative[wanted].reset_index(drop=True))


@pytest.mark.parametrize("what", QUANTITIES[1:])
def test_what_rivals_tell_is_found(informative, what):
    within, model = row(informative, "strata", what), row(informative, "model", what)
    assert within["auroc_low"] > 0.8
    assert model["auroc"] > 0.8
    assert model["versus_confidence_low"] > 0.3
    for how in ("alone", "strata", "model"):
        confidence = row(informative, how, "confidence")
        assert confidence["auroc_low"] < 0.5 < confidence["auroc_high"]


def test_what_rivals_tell_is_found_the_other_way_round():
    table = beyond_confidence(made(500, "concentrated", seed=1), made(500, "even", seed=2), strata=10, replicates=50)
    assert row(table, "strata", "concentration")["auroc_high"] < 0.2
    assert row(table, "model", "concentration")["auroc"] > 0.8  # a model learns the direction


def test_nothing_is_found_where_there_is_nothing(uninformative):
    within = row(uninformative, "strata", "concentration")
    assert within["auroc_low"] < 0.5 < within["auroc_high"]
    assert row(uninformative, "alone", "gap")["auroc"] > 0.75
    for what in QUANTITIES[1:]:
        model = row(uninformative, "model", what)
        assert model["versus_confidence_low"] < 0
        assert -0.01 < model["versus_confidence"] < 0.001  # the noise of a useless feature costs a little


def test_features_are_ranks_hinges_and_their_product():
    """By hand: the rank of each among the samples seen, what is above each knot, and the product of both ranks."""
    seen = torch.tensor([True, True, True, True, False, False])
    one = torch.tensor([10.0, 30.0, 20.0, 40.0, 25.0, 99.0])
    other = torch.tensor([1.0, 1.0, 2.0, 3.0, 2.0, 0.0])
    ranks = torch.tensor([[0.125, 0.625, 0.375, 0.875, 0.5, 1.0], [0.25, 0.25, 0.625, 0.875, 0.625, 0.0]])
    ranks = ranks.double()
    hinges = [(ranks.unsqueeze(2) - torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)).clamp_min(0)]
    expected = torch.cat([torch.cat([r.unsqueeze(1), h], 1) for r, h in zip(ranks, hinges[0], strict=True)], 1)
    expected = torch.cat([expected, ranks.prod(0).unsqueeze(1)], 1)
    torch.testing.assert_close(features_of([one, other], seen, 2), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(features_of([one], seen, 0), ranks[0].unsqueeze(1), rtol=0, atol=1e-12)


def test_a_quantity_that_does_not_vary_among_the_samples_seen_is_no_feature():
    seen = torch.tensor([True, True, False])
    one, still = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([5.0, 5.0, 6.0])
    assert torch.equal(features_of([one, still], seen, 3), features_of([one], seen, 3))
    assert features_of([still], seen, 3).shape == (3, 0)


@pytest.mark.parametrize(("samples", "knots"), [(40, 1), (100, 4), (1000, KNOTS)])
def test_models_have_as_many_knots_as_there_are_samples_for(samples, knots, monkeypatch):
    asked = []

    def watched(columns, seen, count):
        asked.append((len(columns), count))
        return features_of(columns, seen, count)

    monkeypatch.setattr("torch_boc.evaluation.models.features_of", watched)
    pair = tuple(torch.randn(samples, generator=torch.Generator().manual_seed(i)) for i in (0, 1))
    model_scores({"confidence": pair, "gap": tuple(x.square() for x in pair)}, 2, 0)
    assert asked == [(1, 0)] * 2 + [(1, knots)] * 2 + [(2, knots)] * 2


def test_five_folds_are_the_default():
    sets = made(120, "even", seed=1), made(140, "concentrated", seed=2)
    plain, five, four = (
        beyond_confidence(*sets, how=["model"], replicates=5, **x) for x in ({}, {"folds": 5}, {"folds": 4})
    )
    pd.testing.assert_frame_equal(plain, five)
    assert plain["pairs"].tolist() == [5 * 24 * 28] * 9
    assert four["pairs"].tolist() == [4 * 30 * 35] * 9


def test_thin_strata_leave_less_of_confidence():
    known, strange = made(2000, "even", doubt=-2.0, seed=3), made(2000, "even", doubt=-0.5, seed=4)
    left = [
        row(beyond_confidence(known, strange, strata=strata, replicates=2), "strata", "confidence")["auroc"]
        for strata in (1, 10, 100)
    ]
    assert left[0] > 0.75 > left[1] > left[2] > 0.45


def test_confidence_may_separate_without_being_monotone():
    """Strange samples are very sure or very unsure: only the spline can use it."""
    known = made(1000, "even", doubt=0.0, spread=0.3, seed=5)
    strange = torch.cat([made(500, "even", doubt=x, spread=0.3, seed=6) for x in (-1.5, 1.5)])
    table = beyond_confidence(known, strange, replicates=50)
    assert row(table, "model", "confidence")["auroc"] < 0.65
    assert row(table, "model", SPLINE)["auroc"] > 0.95
    assert abs(row(table, "model", "concentration")["versus_confidence"]) < 0.01


def direct(known, strange, strata):
    """Every pair of the same stratum, one by one."""
    wins = pairs = 0.0
    for x, s in zip(known.tolist(), strata[0].tolist(), strict=True):
        for y, t in zip(strange.tolist(), strata[1].tolist(), strict=True):
            wins += (s == t) * ((x > y) + 0.5 * (x == y))
            pairs += s == t
    return wins / pairs, pairs


@pytest.mark.parametrize("strata", [1, 4, 25])
def test_strata_are_those_of_direct_sums(strata):
    known, strange = labelled(90, seed=3)[0], unfamiliar(70, seed=4)
    coins = [bag_of_coins(x.double()) for x in (known, strange)]
    columns = {
        "confidence": [-x.odds for x in coins],
        "gap": [-x.gap for x in coins],
        "free_gap": [-free_gap(x.odds, x.concentration, 5) for x in coins],
        "concentration": [-x.concentration for x in coins],
    }
    pooled = torch.cat(columns["confidence"]).sort().values
    edges = [float(pooled[i * 160 // strata]) for i in range(1, strata)]
    places = [torch.tensor([sum(x >= edge for edge in edges) for x in c.tolist()]) for c in columns["confidence"]]
    table = beyond_confidence(known, strange, strata=strata, replicates=5)
    for what, pair in columns.items():
        auroc, pairs = direct(*pair, places)
        assert row(table, "strata", what)["auroc"] == pytest.approx(auroc, abs=1e-12)
        assert row(table, "strata", what)["pairs"] == pairs


def test_scores_stand_beside_the_quantities():
    """Strange samples differ in their energy only: that is found, and the concentration adds nothing to it."""
    known, strange = made(1000, "even", seed=1) + 1.0, made(1000, "even", seed=2)
    table = beyond_confidence(known, strange, what=["concentration"], beside=["energy", "max_logit"], replicates=20)
    assert row(table, "alone", "max_logit")["auroc"] == 1.0
    assert row(table, "alone", "energy")["auroc"] == pytest.approx(
        float(auroc(known.logsumexp(1), strange.logsumexp(1))), abs=1e-12
    )
    assert row(table, "model", "energy")["auroc"] > 0.95
    assert row(table, "model", "energy_concentration")["versus_without_low"] < 1e-3


def test_what_the_concentration_adds_to_the_energy_is_found(informative):
    both, energy = (row(informative, "model", what) for what in ("energy_concentration", "energy"))
    assert both["versus_without"] == pytest.approx(both["auroc"] - energy["auroc"], abs=1e-9)
    assert both["versus_without_low"] > 0.1


def test_probabilities_have_no_energy():
    pair = labelled(60)[0].softmax(1), unfamiliar(60).softmax(1)
    table = beyond_confidence(*pair, from_probabilities=True, replicates=5)
    assert "energy" not in set(table["what"])
    assert "gen_concentration" in set(table["what"])


def test_alone_is_the_auroc_of_sklearn(uninformative):
    coins = [bag_of_coins(made(n, "even", doubt=d, seed=s)) for n, d, s in ((3000, -2.0, 3), (4000, -0.5, 4))]
    truth = [1] * 3000 + [0] * 4000
    expected = roc_auc_score(truth, -torch.cat([x.gap for x in coins]))
    assert row(uninformative, "alone", "gap")["auroc"] == pytest.approx(expected, abs=1e-12)


def test_one_stratum_is_separation_itself():
    generator = torch.Generator().manual_seed(0)
    known = [torch.randn(80, generator=generator).round(decimals=1) + 1 for _ in range(2)]
    strange = [torch.randn(60, generator=generator).round(decimals=1) for _ in range(2)]
    places = torch.zeros(80, dtype=torch.long), torch.zeros(60, dtype=torch.long)
    ours = [separate_within(pair, places) for pair in zip(known, strange, strict=True)]
    theirs = [separate(rank_scores(x), rank_scores(y)) for x, y in zip(known, strange, strict=True)]
    assert paired_difference(*ours) == pytest.approx(paired_difference(*theirs), abs=1e-12)
    torch.testing.assert_close(ours[0].id_placement, theirs[0].id_placement)
    torch.testing.assert_close(ours[0].ood_placement, theirs[0].ood_placement)


def test_intervals_cover_and_the_paired_one_agrees_with_a_plain_bootstrap():
    """Three strata of different sizes and shifts; the standard errors of three methods agree."""
    generator = torch.Generator().manual_seed(0)
    places = tuple(torch.randint(3, (n,), generator=generator) for n in (300, 400))
    first = tuple(torch.randn(len(x), generator=generator) + (1 - i) * (x == 2) for i, x in enumerate(places))
    second = tuple(x + torch.randn(len(x), generator=generator) for x in first)
    results = [separate_within(x, places) for x in (first, second)]
    value, low, high = paired_difference(*results)
    drawn = []
    for _ in range(300):
        chosen = [torch.randint(len(x), (len(x),), generator=generator) for x in places]
        again = tuple(x[c] for x, c in zip(places, chosen, strict=True))
        drawn.append([separate_within(tuple(map(torch.take, x, chosen)), again).auroc for x in (first, second)])
    drawn = torch.tensor(drawn)
    assert (high - low) / 3.92 == pytest.approx(float((drawn[:, 0] - drawn[:, 1]).std()), rel=0.15)
    assert value == pytest.approx(results[0].auroc - results[1].auroc, abs=1e-12)
    cells = interval_within(results[0].auroc, first, places, 1000, np.random.default_rng(0))
    assert cells[0] < results[0].auroc < cells[1]
    assert (cells[1] - cells[0]) / 3.92 == pytest.approx(float(drawn[:, 0].std()), rel=0.15)


def test_equal_confidences_share_a_stratum():
    confidence = torch.tensor([1.0, 1.0, 1.0, 0.5]), torch.tensor([1.0, 0.2, 1.0])
    known, strange = confidence_strata(confidence, 5)
    assert len({*known[:3].tolist(), strange[0].item(), strange[2].item()}) == 1
    assert pairs_within((known, strange)) == 6


def test_shifts_and_permutations_of_classes_change_nothing():
    known, strange = labelled(300)[0].double(), unfamiliar(300).double()
    one = beyond_confidence(known, strange, beside=(), replicates=20)  # the energy is not the same after a shift
    order = torch.tensor([3, 1, 4, 0, 2])
    other = beyond_confidence(known[:, order] + 8.0, strange[:, order] - 4.0, beside=(), replicates=20)
    for column in ("auroc", "versus_confidence"):
        assert one[column].tolist() == pytest.approx(other[column].tolist(), abs=2e-3)
    assert one["auroc"][:8].tolist() == pytest.approx(other["auroc"][:8].tolist(), abs=1e-4)


def test_swapped_sets_turn_round():
    known, strange = labelled(200)[0], unfamiliar(300)
    one, other = beyond_confidence(known, strange, replicates=5), beyond_confidence(strange, known, replicates=5)
    assert one["auroc"][:12].tolist() == pytest.approx((1 - other["auroc"][:12]).tolist(), abs=1e-12)


def test_seed_decides_and_nothing_else():
    known, strange = labelled(200)[0], unfamiliar(200)
    one, same, other = (beyond_confidence(known, strange, replicates=20, seed=seed) for seed in (1, 1, 2))
    assert one.equals(same)
    assert one["auroc"][:12].equals(other["auroc"][:12])
    assert not one["auroc"][12:].equals(other["auroc"][12:])
    assert not one["auroc_low"][:12].equals(other["auroc_low"][:12])


def test_sources_are_those_of_logit_sets():
    known, strange = labelled(50), unfamiliar(50)
    one = beyond_confidence(known, strange, replicates=5)
    assert one.equals(beyond_confidence({"logits": known[0].numpy(), "y": known[1]}, (strange, known[1]), replicates=5))


def test_two_classes_have_nothing_beyond_confidence():
    table = beyond_confidence(labelled(300, 2)[0], unfamiliar(300, 2), beside=(), replicates=50)
    for how in ("alone", "strata"):
        for what in QUANTITIES[1:]:
            assert row(table, how, what)["auroc"] == 0.5
    models = table[table["how"] == "model"]
    spline = row(table, "model", SPLINE)
    assert models["auroc"].iloc[2:].tolist() == [spline["auroc"]] * 3
    assert models["versus_confidence"].iloc[2:].tolist() == [spline["versus_confidence"]] * 3
    assert row(table, "model", "confidence")["auroc"] > 0.6


def test_constant_confidence_tells_nothing():
    logits = torch.tensor([[2.0, 0.0, 0.0, -1.0]])
    table = beyond_confidence(logits.repeat(40, 1), logits.repeat(30, 1), replicates=20)
    assert (table["auroc"] == 0.5).all()
    assert (table["versus_confidence"] == 0).all()
    assert (table["auroc_low"] == 0.5).all()
    assert (table["auroc_high"] == 0.5).all()


@pytest.mark.parametrize("sizes", [(1, 1), (1, 40), (2, 2), (3, 2), (7, 30)])
def test_tiny_sets(sizes):
    table = beyond_confidence(labelled(sizes[0])[0], unfamiliar(sizes[1]), replicates=10)
    alone, models = table[table["how"] == "alone"], table[table["how"] == "model"]
    assert alone["auroc"].between(0, 1).all()
    if min(sizes) == 1:
        assert models["auroc"].isna().all()
        assert (models["pairs"] == 0).all()
        assert table["versus_confidence_low"].isna().all()
    else:
        assert models["auroc"].between(0, 1).all()


def test_sets_that_are_apart():
    known, strange = 30 * torch.eye(5).repeat(40, 1), 0.1 * unfamiliar(200)
    table = beyond_confidence(known, strange, replicates=10)
    assert row(table, "alone", "confidence")["auroc"] == 1
    assert row(table, "alone", "confidence")["auroc_low"] == pytest.approx(0.025 ** (1 / 200))
    assert row(table, "model", "confidence")["auroc"] == 1
    assert math.isnan(row(table, "strata", "confidence")["auroc"])
    assert row(table, "strata", "confidence")["pairs"] == 0


OPTIONS = [{"folds": 1}, {"folds": 0}, {"strata": 0}, {"replicates": 0}, {"seed": -1}]
OPTIONS += [{"how": ["bins"]}, {"how": "model"}, {"what": ["confidence"]}]


@pytest.mark.parametrize("option", OPTIONS)
def test_options_that_make_no_sense(option):
    with pytest.raises(ValueError, match=f"expected {next(iter(option))} as"):
        beyond_confidence(labelled(9)[0], unfamiliar(9), **option)


def test_sets_of_different_classes():
    with pytest.raises(
        ValueError, match="expected the same number of classes in every set, got 5 in 'id' and 4 in 'ood'"
    ):
        beyond_confidence(labelled(9, 5)[0], unfamiliar(9, 4))
