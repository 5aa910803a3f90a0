"""Each function against an outside reference: mpmath, SciPy, torchmetrics, crepes, MAPIE and pytorch-ood."""

import numpy as np
import pytest
import scipy.stats
import torch
import torchmetrics
from crepes import ConformalClassifier, martingales
from crepes.base import p_values_batch
from mapie.classification import SplitConformalClassifier
from mpmath import mp
from sklearn.base import BaseEstimator, ClassifierMixin

from tests import reference
from tests.functional.cases import as_tensor, over_paths, random_logits
from torch_boc import Acceptance, ConformalTest, kernels
from torch_boc.functional import boc_summary, compute_scores, scores
from torch_boc.functional.conformal import (
    look_up_ranks,
    rank_p_values,
    rate_quantile,
    stream_p_values,
    threshold_rank,
)
from torch_boc.functional.score_bins import count_bins, num_bins, score_bin
from torch_boc.functional.summary import calibration_error


def distances(row):
    """How far each rival is below the top, nearest first."""
    ordered = sorted(map(mp.mpf, row), reverse=True)
    return [ordered[0] - rival for rival in ordered[1:]]


def gen(row):
    """GEN as it is published: the 100 largest probabilities, to the power of 0.1, and those of their complements."""
    weights = [mp.mpf(1), *(mp.exp(-x) for x in distances(row))]
    total, rest = mp.fsum(weights), mp.fsum(weights[1:])
    chances = [(1 / total, rest / total), *((x / total, 1 - x / total) for x in weights[1:100])]
    return -mp.fsum((p * q) ** mp.mpf("0.1") for p, q in chances)


def tempered(row):
    found = [1 / (1 + mp.exp(-x / 4)) for x in distances(row)]
    return mp.fsum(found) / len(found)


def nearest(row):
    number = {2: 1, 3: 1, 10: 5, 150: 30}[len(row)]
    return sum(distances(row)[:number]) / number


def entropy(row):
    weights = [mp.exp(mp.mpf(x)) for x in row]
    return mp.fsum(x / mp.fsum(weights) * mp.log(x / mp.fsum(weights)) for x in weights)


SCORES = {
    "msp": lambda row: reference.probe(row).confidence,
    "log_odds": lambda row: -mp.log(mp.fsum(mp.exp(-x) for x in distances(row))),
    "energy": lambda row: mp.log(mp.fsum(mp.exp(mp.mpf(x)) for x in row)),
    "max_logit": max,
    "entropy": entropy,
    "gen": gen,
    "logit_gap": lambda row: mp.fsum(distances(row)) / (len(row) - 1),
    "logit_gap_top": nearest,
    "dominance": lambda row: reference.probe(row).dominance,
    "tempered_dominance": tempered,
    "gap": lambda row: -reference.probe(row).gap,
    "log_p_value": lambda row: reference.log_p_value(row, 100),
    "concentration": lambda row: -reference.probe(row).concentration,
    "structural_score": lambda row: -mp.expm1(reference.log_p_value(row, 100)),
}


def test_every_score_has_a_reference():
    assert tuple(scores) == tuple(SCORES)


@over_paths
@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("classes", [2, 3, 10, 150])
def test_each_score_is_its_formula(name, classes, path):
    """Also for many equal logits, at the top and at the edge of the largest ones."""
    z = random_logits(6, classes, seed=classes)
    z[3:] = (z[3:] / 3).round()
    with mp.workdps(400 if name == "gen" else 60):  # more digits than 1 - p loses
        expected = as_tensor([SCORES[name](row) for row in z.tolist()])
    with kernels.use(path):
        found = scores[name](z)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)
        torch.testing.assert_close(compute_scores(z)[name], found, rtol=1e-13, atol=1e-14)


@over_paths
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lead", [0.0, 86.0, 95.0, 740.0, 3000.0])
def test_the_log_odds_never_saturate(lead, dtype, path):
    """Float32 odds underflow when the top leads by 87 to 103, float64 odds when it leads by 745."""
    z = random_logits(4, 30, scale=1.0)
    z[:, 1] = z.amax(1) + lead + 0.5
    z = z.to(dtype)
    expected = as_tensor([SCORES["log_odds"](row) for row in z.tolist()])
    with kernels.use(path):
        found = scores["log_odds"](z)
    torch.testing.assert_close(found, expected, rtol=1e-6 if dtype == torch.float32 else 1e-13, atol=2e-7)


@over_paths
def test_scores_of_rows_without_a_rival_and_without_a_result(path):
    inf, nan = torch.inf, torch.nan
    z = torch.tensor([[3.0, -inf, -inf], [nan, 0.0, 1.0], [inf, 0.0, 1.0], [-inf, -inf, -inf], [1.0, 1.0, -inf]])
    with kernels.use(path):
        found = compute_scores(z, ["log_odds", "gen", "logit_gap_top", "tempered_dominance"])
    assert found["log_odds"].tolist() == pytest.approx([inf, nan, nan, nan, 0.0], nan_ok=True)
    assert (found["gen"][0], found["tempered_dominance"][0]) == (0.0, 1.0)
    assert all(value[1:4].isnan().all() and not value[[0, 4]].isnan().any() for value in found.values())


@pytest.mark.parametrize("classes", [10, 300])
def test_gen_is_that_of_pytorch_ood(classes):
    detectors = pytest.importorskip("pytorch_ood.detector")
    z = random_logits(50, classes, scale=1.0)  # no probability below 1e-7, which theirs clamps
    theirs = detectors.GEN(None, gamma=0.1, M=100).predict_logits(z)  # the mean, not the sum
    torch.testing.assert_close(scores["gen"](z), -min(100, classes) * theirs, rtol=1e-10, atol=0)


def test_calibration_errors_are_those_of_torchmetrics():
    z, target = random_logits(400, 5, scale=2.0), torch.arange(400) % 5
    confidence, correct = z.softmax(-1).amax(-1), z.argmax(-1) == target
    for bins in (1, 10, 15):
        theirs = torchmetrics.functional.calibration_error(
            z.softmax(-1), target, task="multiclass", num_classes=5, n_bins=bins
        ).double()
        torch.testing.assert_close(calibration_error(confidence, correct, bins), theirs, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(boc_summary(z, target, bins=bins)["ece"], theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("samples", [1, 19, 20, 99, 3000, 5 * 10**6])
@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.5])
def test_thresholds_keep_the_guarantee_of_the_beta_distribution(samples, alpha):
    beta = scipy.stats.beta
    rank, sure = threshold_rank(samples, alpha), threshold_rank(samples, alpha, 0.01)
    assert rank / (samples + 1) <= alpha + 1e-12 < (rank + 1) / (samples + 1) + 1e-12
    assert sure <= rank
    assert sure == 0 or beta.cdf(alpha, sure, samples + 1 - sure) >= 0.99
    assert sure == rank or beta.cdf(alpha, sure + 1, samples - sure) < 0.99
    for chance in (0.05, 0.99):
        quantile = rate_quantile(max(rank, 1), samples, chance)
        assert quantile == pytest.approx(beta.ppf(chance, max(rank, 1), samples + 1 - max(rank, 1)), rel=1e-9)


def test_a_level_that_is_a_multiple_of_the_floor_is_reached():
    assert [threshold_rank(n, 0.05) for n in (18, 19, 59, 99)] == [0, 1, 3, 5]


@pytest.mark.parametrize("by_class", [False, True])
def test_sets_are_those_of_crepes(by_class):
    """Its nonconformity is 1 - the probability of a class."""
    logits, new = (random_logits(n, 4, seed=n).float() for n in (600, 300))
    target = torch.multinomial(logits.softmax(-1), 1, generator=torch.Generator().manual_seed(0))[:, 0]
    sets = Acceptance("prediction", resolution=2**10).calibrate(logits, target).sets(new, 0.83, by_class=by_class)
    chances, others = (1 - x.softmax(-1).double().numpy() for x in (logits, new))
    theirs = ConformalClassifier().fit(chances[np.arange(600), target], bins=target.numpy() if by_class else None)
    for c in range(4):
        bins = np.full(300, c) if by_class else None
        expected = theirs.predict_set(others[:, [c]], bins, confidence=0.83, smoothing=False)[:, 0]
        assert (sets[:, c].numpy() != expected).mean() < 0.01  # scores in one bin are ties


class Softmax(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose inputs are logits."""

    classes_ = np.arange(4)

    def __sklearn_is_fitted__(self):
        return True

    def predict_proba(self, x):
        return torch.from_numpy(x).softmax(-1).numpy()

    def predict(self, x):
        return x.argmax(1)


def test_sets_are_those_of_mapie():
    logits, new = (random_logits(n, 4, seed=n).double() for n in (600, 300))
    target = torch.multinomial(logits.softmax(-1), 1, generator=torch.Generator().manual_seed(0))[:, 0]
    theirs = SplitConformalClassifier(Softmax(), confidence_level=0.83, conformity_score="lac", prefit=True)
    expected = theirs.conformalize(logits.numpy(), target.numpy()).predict_set(new.numpy())[1][:, :, 0]
    sets = Acceptance(resolution=2**10).calibrate(logits, target).sets(new, 0.83)
    assert (sets.numpy() != expected).mean() < 0.01  # scores in one bin are ties


def test_conformal_p_values_are_those_of_crepes():
    """There, anomalous scores are high, so the signs turn."""
    held_out, new = (random_logits(n, scale=1.0, seed=n).float().round(decimals=1) for n in (200, 300))
    place, nothing = score_bin(held_out, 64), torch.zeros(1, num_bins(64), dtype=torch.int64)
    counts = count_bins(place, torch.ones_like(place, dtype=torch.bool), num_bins(64))
    found = rank_p_values(look_up_ranks(counts, counts.cumsum(-1), score_bin(new, 64)))
    expected = p_values_batch(-held_out.numpy(), -new.numpy()[:, None], smoothing=False).reshape(-1)
    torch.testing.assert_close(found, torch.from_numpy(expected).double(), rtol=0, atol=1e-12)
    bins = torch.arange(200) % 3, torch.arange(300) % 3
    grouped = ConformalTest(groups=3).calibrate(scores=held_out, group=bins[0]).test(scores=new, group=bins[1])
    expected = p_values_batch(-held_out.numpy(), -new.numpy()[:, None], *(x.numpy() for x in bins), smoothing=False)
    torch.testing.assert_close(grouped, torch.from_numpy(expected).double().reshape(-1), rtol=0, atol=1e-12)
    place = score_bin(new, 64)
    uniform = torch.from_numpy(np.random.RandomState(7).rand(300))
    found = stream_p_values(nothing, place, None, torch.ones_like(place, dtype=torch.bool), uniform)
    expected = martingales.semi_online_p_values(-new.double().numpy(), seed=7)
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=0, atol=1e-12)
