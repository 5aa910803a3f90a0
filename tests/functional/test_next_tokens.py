"""The tally of next-token predictions against direct computations in float64."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torchmetrics.functional.classification import multiclass_calibration_error

from benchmarks.paper.beyond import separate_within
from torch_boc.evaluation.gaps import explained_share
from torch_boc.functional import bag_of_coins, gather
from torch_boc.functional.bounds import forced_gap
from torch_boc.functional.next_tokens import (
    BINS,
    LOWEST_STRATUM,
    SCALES,
    STRATA,
    STRATUM,
    add_predictions,
    add_tallies,
    empty_text_tally,
    score_numbers,
)
from torch_boc.functional.text_summary import chance_error, lost_coins_histogram, text_summary

CLASSES = 400


@pytest.fixture(scope="module")
def sample():
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(3000, CLASSES, generator=random) * torch.linspace(1, 6, 3000).unsqueeze(1)
    target = torch.multinomial((0.8 * logits).softmax(-1), 1, generator=random).squeeze(1)
    return logits, target


@pytest.fixture(scope="module")
def found(sample):
    total = empty_text_tally()
    add_predictions(total, *sample)
    return text_summary(total)


@pytest.fixture(scope="module")
def direct(sample):
    """The probabilities in float64, those of the targets, and which predictions are right."""
    p = sample[0].double().softmax(-1)
    return p, p.gather(1, sample[1][:, None]).squeeze(1), p.argmax(1) == sample[1]


def test_means(found, sample, direct):
    (p, own, right), (logits, target) = direct, sample
    coins = bag_of_coins(logits.double())
    one_hot = torch.nn.functional.one_hot(target, CLASSES)
    expected = {
        "nll": -own.log().mean(),
        "perplexity": (-own.log().mean()).exp(),
        "accuracy": right.double().mean(),
        "confidence": p.amax(1).mean(),
        "entropy": -(p * p.log()).sum(1).mean(),
        "lost_coins": (coins.loss * (CLASSES - 1)).mean(),
        "gap": coins.gap.mean(),
        "forced_gap": forced_gap(coins.odds, CLASSES).mean(),
        "free_gap": coins.free_gap.mean(),
        "concentration": coins.concentration.mean(),
        "brier_confidence": (p.amax(1) - right.double()).square().mean(),
        "brier_all": (p - one_hot).square().sum(1).mean(),
        "forced_share": forced_gap(coins.odds, CLASSES).mean() / coins.gap.mean(),
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(float(value), rel=2e-5), name
    assert found["tokens"] == 3000
    assert found["invalid"] == 0
    rank = (p > own[:, None]).sum(1) + 1
    for most in (5, 10, 100):
        assert found[f"top_{most}"] == pytest.approx(float((rank <= most).double().mean()))


def test_calibration_error_is_that_of_torchmetrics(found, direct, sample):
    expected = multiclass_calibration_error(direct[0].float(), sample[1], CLASSES, n_bins=BINS)
    assert found["ece"] == pytest.approx(float(expected), abs=1e-5)


def test_the_share_of_the_variance_is_that_of_the_report(found, sample):
    coins = bag_of_coins(sample[0].double())
    expected = explained_share(coins.gap, forced_gap(coins.odds, CLASSES))
    assert 1 - found["forced_variance"] == pytest.approx(1 - expected, rel=1e-3)


@pytest.mark.parametrize("score", SCALES)
def test_aurocs_are_those_of_scikit_learn(found, sample, direct, score):
    evidence = gather(sample[0].double(), sample[1], extras=("surprise", "margin"))
    numbers, right = score_numbers(evidence), direct[2]
    own = numbers[list(SCALES).index(score)]
    assert found[f"auroc_{score}"] == pytest.approx(roc_auc_score(right, own), abs=found[f"auroc_{score}_error"])
    assert found[f"auroc_{score}_error"] < 0.01
    strata = ((numbers[0] - LOWEST_STRATUM) / STRATUM).floor().clamp(0, STRATA - 1).long()
    inside = separate_within((own[right], own[~right]), (strata[right], strata[~right])).auroc
    assert found[f"auroc_{score}_at_equal_confidence"] == pytest.approx(inside, abs=0.01)


def test_quantiles_of_the_lost_coins(found, sample):
    lost = bag_of_coins(sample[0].double()).loss * (CLASSES - 1)
    for level in (0.05, 0.5, 0.95):
        expected = np.quantile(lost.numpy(), level, method="inverted_cdf")
        assert found[f"lost_coins_q{100 * level:02.0f}"] == pytest.approx(expected, rel=0.01)


def test_batches_of_any_shape_add_up(sample, found):
    logits, target = sample
    parts = [empty_text_tally() for _ in range(2)]
    add_predictions(parts[0], logits[:1000].view(4, 250, CLASSES), target[:1000].view(4, 250))
    padded, ignored = logits[1000:].clone(), target[1000:].clone()
    add_predictions(parts[1], torch.cat([padded, padded[:7]]), torch.cat([ignored, ignored[:7] * 0 - 100]))
    add_tallies(parts[0], parts[1])
    other = text_summary(parts[0])
    assert other.keys() == found.keys()
    assert all(other[key] == pytest.approx(found[key], rel=1e-9) for key in found)


def test_rows_without_numbers_count_as_invalid_alone(sample, found):
    logits = torch.cat([sample[0], torch.full((2, CLASSES), math.nan)])
    total = empty_text_tally()
    add_predictions(total, logits, torch.cat([sample[1], torch.tensor([0, 1])]))
    other = text_summary(total)
    assert other.pop("invalid") == 2
    assert all(value == pytest.approx(found[key], rel=1e-9) for key, value in other.items())


def test_perfectly_calibrated_predictions_have_about_the_error_of_chance():
    random = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(20_000, 50, generator=random)
    target = torch.multinomial(logits.softmax(-1), 1, generator=random).squeeze(1)
    total = empty_text_tally()
    add_predictions(total, logits, target)
    assert 0.5 < text_summary(total)["ece"] / chance_error(total) < 1.6


def test_the_histogram_has_every_prediction(sample):
    total = empty_text_tally()
    add_predictions(total, *sample)
    edges, counts = lost_coins_histogram(total)
    assert sum(counts) == 3000
    assert edges == sorted(edges)
    assert len(edges) == len(counts) + 1


def test_no_text_gives_no_numbers():
    found = text_summary(empty_text_tally())
    assert found["tokens"] == 0
    assert all(math.isnan(value) for key, value in found.items() if key not in ("tokens", "invalid"))
