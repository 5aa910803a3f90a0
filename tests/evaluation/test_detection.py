"""Separation against scikit-learn and direct sums, curves against the full ones, and which scores are compared."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.metrics import roc_curve as sklearn_roc_curve

from tests.data.cases import labelled, logit_sets, ood_logits
from torch_boc import BoCSeparation
from torch_boc.evaluation import LogitSet, evaluate
from torch_boc.evaluation.detection import collect_scores, paired_difference, rank_scores, roc_curve, separate
from torch_boc.evaluation.inputs import probe_set
from torch_boc.functional import auroc, fpr_at_tpr, scores

CASES = {
    "continuous": (3000, 2000, 1.0, 14),
    "ties": (800, 900, 0.7, 0),
    "few against many": (30, 4000, 1.5, 14),
    "many against few": (9000, 7, 0.5, 1),
    "apart": (500, 500, 20.0, 14),
    "backwards": (500, 700, -1.0, 2),
    "one value": (50, 60, 0.0, -3),
    "two samples": (1, 1, 1.0, 14),
}


@pytest.fixture(params=CASES)
def pair(request):
    n, m, shift, digits = CASES[request.param]
    generator = torch.Generator().manual_seed(n + m)
    positive = torch.randn(n, generator=generator, dtype=torch.float64) + shift
    negative = torch.randn(m, generator=generator, dtype=torch.float64)
    return positive.round(decimals=digits), negative.round(decimals=digits)


def for_sklearn(positive, negative):
    return np.r_[np.ones(len(positive)), np.zeros(len(negative))], torch.cat([positive, negative]).numpy()


def test_statistics_are_those_of_sklearn(pair):
    result = separate(*map(rank_scores, pair))
    truth, values = for_sklearn(*pair)
    fpr, tpr, _ = sklearn_roc_curve(truth, values, drop_intermediate=False)
    assert result.auroc == pytest.approx(roc_auc_score(truth, values), abs=1e-12)
    assert result.aupr == pytest.approx(average_precision_score(truth, values), abs=1e-12)
    assert result.fpr95 == pytest.approx(fpr[tpr >= 0.95 - 1e-12].min(), abs=1e-12)
    assert result.auroc == pytest.approx(auroc(*pair).item(), abs=1e-12)
    assert result.fpr95 == fpr_at_tpr(*pair).item()
    assert result.ood_placement.mean().item() == pytest.approx(result.auroc, abs=1e-12)


def direct_placements(positive, negative):
    wins = (positive[:, None] > negative).double() + 0.5 * (positive[:, None] == negative)
    return wins.mean(1), wins.mean(0)


@pytest.mark.parametrize("digits", [0, 8])
def test_paired_difference_is_delong_s(digits):
    generator = torch.Generator().manual_seed(0)
    positive = torch.randn(2, 90, generator=generator, dtype=torch.float64) + torch.tensor([[1.0], [0.6]])
    negative = torch.randn(2, 70, generator=generator, dtype=torch.float64)
    positive[1] += positive[0]
    positive, negative = positive.round(decimals=digits), negative.round(decimals=digits)
    one, other = (separate(rank_scores(p), rank_scores(n)) for p, n in zip(positive, negative, strict=True))
    rows, columns = zip(*map(direct_placements, positive, negative), strict=True)
    covariance = sum(np.cov(torch.stack(x).numpy()) / len(x[0]) for x in (rows, columns))
    error = 1.959964 * np.sqrt(np.array([1, -1]) @ covariance @ np.array([1, -1]))
    value = (rows[0].mean() - rows[1].mean()).item()
    assert paired_difference(one, other) == pytest.approx((value, value - error, value + error), rel=1e-6)
    torch.testing.assert_close(one.id_placement, rows[0])
    torch.testing.assert_close(one.ood_placement, columns[0])


@pytest.mark.parametrize(("samples", "known"), [(1, False), (2, True)])
def test_an_interval_of_a_difference_needs_two_samples(samples, known):
    one, other = (
        separate(*(rank_scores(torch.tensor(x[:samples])) for x in sides))
        for sides in (([3.0, 1.0], [2.0, 0.0]), ([1.0, 3.0], [2.0, 5.0]))
    )
    assert np.isfinite(paired_difference(one, other)[1]) == known


def distance_to_polyline(points, line):
    """The distance of each point to the nearest segment."""
    start, step = line[:-1], np.diff(line, axis=0)
    share = ((points[:, None] - start) * step).sum(-1) / (step**2).sum(-1)
    nearest = start + np.clip(share, 0, 1)[..., None] * step
    return np.sqrt(((points[:, None] - nearest) ** 2).sum(-1)).min(1)


def test_thinned_curve_stays_with_the_full_one(pair):
    fpr, tpr = roc_curve(*(rank_scores(x).values for x in pair))
    full = np.stack(sklearn_roc_curve(*for_sklearn(*pair), drop_intermediate=False)[:2], 1)
    thin = torch.stack([fpr, tpr], 1).numpy()
    assert len(thin) <= 500
    assert thin[0].tolist() == [0, 0]
    assert thin[-1].tolist() == [1, 1]
    assert (np.diff(thin, axis=0) >= 0).all()
    assert distance_to_polyline(full, thin).max() <= 0.005
    assert distance_to_polyline(thin, full).max() <= 1e-12


def test_table_has_every_score_then_detectors_then_columns():
    test, ood = logit_sets()
    test = LogitSet(test.logits, test.target, {"mine": test.logits.amax(1)})
    other = LogitSet(ood.logits, None, {"mine": ood.logits.amax(1)})
    how = {"train": labelled(seed=5), "replicates": 20, "detectors": {"top": lambda z: z.amax(1)}}
    report = evaluate(test, {"one": other, "two": other}, **how)
    for name in ("one", "two"):
        table = report.ood[report.ood["ood"] == name].set_index("score")
        assert list(table.index) == [*scores, "mahalanobis", "top", "mine"]
        assert table["kind"].tolist() == ["score"] * len(scores) + ["detector"] * 2 + ["column"]
        assert table.index[table["upside_down"]].tolist() == ["structural_score"]
        assert table.loc["top", "auroc"] == table.loc["mine", "auroc"] == table.loc["max_logit", "auroc"]
        truth, values = for_sklearn(*(scores["entropy"](z) for z in (test.logits, ood.logits)))
        assert table.loc["entropy", "auroc"] == pytest.approx(roc_auc_score(truth, values), abs=1e-12)
        difference = table["auroc"] - table.loc["msp", "auroc"]
        assert table["versus_msp"].to_numpy() == pytest.approx(difference.to_numpy(), abs=1e-12)
        for column in ("auroc", "fpr95", "aupr", "versus_msp"):
            assert (table[f"{column}_low"] <= table[column] + 1e-12).all()
            assert (table[f"{column}_high"] >= table[column] - 1e-12).all()
    assert report.results.ood["ood"].tolist() == sorted(report.results.ood["ood"])


def test_scores_rank_as_in_the_metric():
    """Scores that round to 1 gave another AUROC here: samples were equal by rounding."""
    sharp = [LogitSet(12.0 * data.logits, data.target) for data in logit_sets()]
    assert (scores["msp"](sharp[0].logits) == 1.0).sum() > 1
    table, metric = evaluate(*sharp, replicates=5).ood.set_index("score"), BoCSeparation(tuple(scores))
    for data, is_ood in zip(sharp, (False, True), strict=True):
        metric.update(data.logits, is_ood)
    for name in scores:
        for statistic in ("auroc", "fpr95"):
            expected = metric.compute()[f"{name}_{statistic}"].item()
            assert table.loc[name, statistic] == pytest.approx(expected, abs=1e-12), name


def test_a_gap_that_is_a_function_of_confidence_adds_nothing_to_it():
    """Equal rivals: the gap is what confidence forces. Below a confidence of 0.25 it rises, and −Δ ranks backwards."""
    numbers = torch.Generator().manual_seed(0)
    top = [torch.rand(2000, 1, generator=numbers) * width for width in (1.0, 0.6)]
    logits = [torch.cat([x, torch.zeros(2000, 9)], 1) - 3 for x in top]
    report = evaluate(*logits, replicates=10)
    table = report.ood.set_index("score")
    assert table.loc["gap", "auroc"] == pytest.approx(1 - table.loc["msp", "auroc"], abs=1e-3)
    assert table.loc["dominance", ["versus_msp", "versus_msp_low", "versus_msp_high"]].abs().max() < 1e-4
    assert any("it adds nothing of practical size to confidence" in sentence for sentence in report.verdict)
    assert "only where it is above 25.0 %" in report.to_markdown()


@pytest.mark.parametrize("owner", ["id", "ood"])
def test_a_column_of_one_side_only_is_left_out_and_named(owner):
    sets = {"id": ood_logits(30), "ood": ood_logits(20)}
    columns = {name: {"odin": z[:, 0]} if name == owner else {} for name, z in sets.items()}
    probed = [probe_set(LogitSet(z, None, columns[name], name)) for name, z in sets.items()]
    with pytest.warns(UserWarning, match=f"'odin' of '{owner}' is left out: '{'ood' if owner == 'id' else 'id'}'"):
        found = collect_scores(probed)
    assert all(len(score.sets) == 2 for score in found if score.name != "odin")
    assert not any("ood" in score.sets for score in found if score.name == "odin")


def test_two_scores_without_an_error_are_not_shown_to_be_the_same():
    known, strange = (30 + torch.arange(200) / 100)[:, None] * torch.eye(5).repeat(40, 1), 0.1 * ood_logits(300)
    table = evaluate(known, strange, replicates=20).ood.set_index("score")
    assert table.loc[["msp", "energy"], "auroc"].tolist() == [1, 1]
    assert table.loc["msp", ["versus_msp", "versus_msp_low", "versus_msp_high"]].tolist() == [0, 0, 0]
    reach = 1 - 0.025 ** (1 / 200)
    found = table.loc["energy", ["versus_msp", "versus_msp_low", "versus_msp_high"]].tolist()
    assert found == pytest.approx([0, -reach, reach])


Z = ood_logits(30)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"id": {"logits": Z, "msp": Z[:, 0]}}, "expected a new name for a column, got 'msp', .* name of a score"),
        ({"ood": {"logits": Z, "top": Z[:, 0]}, "detectors": {"top": len}}, "column, got 'top', .* name of a detector"),
        ({"detectors": {"energy": len}}, "expected a new name for a detector, got 'energy', which is the name of a sc"),
        ({"train": labelled(), "detectors": {"mahalanobis": len}}, "'mahalanobis', which is the name of a detector"),
        ({"detectors": {3: len}}, "expected names of detectors as strings, got 3"),
    ],
)
def test_names_that_are_taken(arguments, message):
    with pytest.raises(ValueError, match=message):
        evaluate(**{"id": Z, "ood": Z, **arguments})
