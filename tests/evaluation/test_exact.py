"""Bounds for few samples on one side: against SciPy, direct sums, and what they must hold."""

import math

import pytest
import torch
from scipy.stats import binom, binomtest

from torch_boc.evaluation.detection import rank_scores, separate
from torch_boc.evaluation.intervals import aupr_interval, auroc_interval, binomial_interval, fpr_interval

NARROW = (0.4, 0.4)


@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (0, 200), (3, 50), (200, 200), (17, 26_032)])
def test_binomial_interval_is_that_of_clopper_and_pearson(successes, trials):
    expected = binomtest(successes, trials).proportion_ci(0.95, "exact")
    assert binomial_interval(successes, trials) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_ordinary_areas_keep_the_bootstrap():
    scores = torch.linspace(0, 1, 200).double()
    assert auroc_interval(NARROW, 0.9, 200) == NARROW
    assert fpr_interval(NARROW, 0.4, scores, scores, 0.95) == NARROW
    assert auroc_interval(NARROW, math.nan, 200) == NARROW


@pytest.mark.parametrize("auroc", [0.0, 0.001, 0.999, 1.0])
def test_extreme_areas_are_widened_and_mirror_each_other(auroc):
    low, high = auroc_interval((auroc, auroc), auroc, 200)
    assert low < auroc < high or (low, high)[int(auroc)] == auroc
    assert auroc_interval((1 - auroc,) * 2, 1 - auroc, 200) == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_thresholds_are_order_statistics():
    """Of 200 samples the 5 % quantile lies between the 4th and the 17th; nothing else moves where no rate is left."""
    assert (binom.ppf(0.025, 200, 0.05), binom.ppf(0.975, 200, 0.05)) == (4, 16)
    positive, negative = torch.arange(200).double(), torch.tensor([-9.0] * 95 + [7.5] * 5).double()
    assert separate(rank_scores(positive), rank_scores(negative)).fpr95 == 0
    low, high = fpr_interval((0.0, 0.0), 0.0, positive, negative, 0.95)
    assert (low, high) == pytest.approx((0, math.hypot(binomial_interval(0, 100)[1], 0.05)))


@pytest.mark.parametrize("ratio", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("auroc", [0.02, 0.5, 0.98])
def test_average_precision_stays_within_what_the_area_allows(auroc, ratio):
    """Never-falling false positive rates of a given mean: the bounds hold, and two of the curves reach them."""
    low, high = aupr_interval((0.5, 0.5), (auroc, auroc), ratio)
    recall = (torch.arange(40_000).double() + 0.5) / 40_000
    curves = [torch.full_like(recall, 1 - auroc), (recall > auroc).double(), recall ** (auroc / (1 - auroc))]
    found = [float((recall / (recall + ratio * x)).mean()) for x in curves]
    assert min(low, 0.5) == pytest.approx(min(found[0], 0.5), abs=1e-3)
    assert max(high, 0.5) == pytest.approx(max(found[1], 0.5), abs=1e-3)
    assert found[0] - 5e-3 <= found[2] <= found[1] + 1e-3
