"""Thresholds and the distribution of the false-alarm rate, against SciPy's Beta."""

import math

import pytest
import torch
from scipy.stats import beta

from torch_boc.functional.conformal import Threshold, rate_chance, rate_quantile, threshold_rank


@pytest.mark.parametrize("samples", [1, 19, 20, 99, 3000, 10**6])
@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.5])
def test_ranks_are_the_largest_that_keep_the_promise(samples, alpha):
    rank = threshold_rank(samples, alpha)
    assert rank / (samples + 1) <= alpha + 1e-12
    assert (rank + 1) / (samples + 1) > alpha
    sure = threshold_rank(samples, alpha, 0.99)
    assert sure <= rank
    assert sure == 0 or beta.cdf(alpha, sure, samples + 1 - sure) >= 0.99
    assert sure == rank or beta.cdf(alpha, sure + 1, samples - sure) < 0.99


def test_a_level_that_is_a_multiple_of_the_floor_is_reached():
    assert [threshold_rank(n, 0.05) for n in (18, 19, 59, 99)] == [0, 1, 3, 5]


@pytest.mark.parametrize(("rank", "samples"), [(1, 1), (5, 99), (150, 3000), (50_000, 10**6)])
@pytest.mark.parametrize("chance", [0.05, 0.5, 0.99])
def test_quantiles_are_those_of_the_beta_distribution(rank, samples, chance):
    assert rate_quantile(rank, samples, chance) == pytest.approx(beta.ppf(chance, rank, samples + 1 - rank), rel=1e-9)


def test_beyond_a_million_samples_the_promise_is_kept_and_near():
    samples, alpha = 5_000_000, 0.01
    rank = threshold_rank(samples, alpha, 0.99)
    assert beta.cdf(alpha, rank, samples + 1 - rank) >= 0.99
    assert rank / (alpha * samples) > 0.98
    assert rate_chance(int(alpha * samples) + 2, samples, alpha) == 0.0


def test_the_rate_is_as_promised_in_simulations():
    """Of 2,000 sets of 99 held-out samples, a normal share has a rate beyond its quantile."""
    scores = torch.rand(2_000, 99, generator=torch.Generator().manual_seed(0))
    rate = scores.kthvalue(threshold_rank(99, 0.1), 1).values  # the share of uniform scores below the threshold
    threshold = Threshold(torch.tensor(0.1), torch.tensor(10), torch.tensor(99))
    assert abs(rate.mean() - threshold.expected_rate) < 0.003
    for chance in (0.05, 0.5, 0.95):
        within = (rate <= threshold.rate_quantile(chance)).double().mean()
        assert abs(within - chance) < 4 * math.sqrt(chance * (1 - chance) / 2_000)


def test_shapes_and_bad_chances():
    threshold = Threshold(torch.zeros(2), torch.tensor([0, 3]), torch.tensor([5, 50]))
    assert threshold.rate_quantile(0.9).shape == (2,)
    assert threshold.rate_quantile(0.9)[0] == 0
    with pytest.raises(ValueError, match=r"expected chance in \(0, 1\), got 1"):
        threshold.rate_quantile(1.0)
