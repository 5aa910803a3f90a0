"""Binomial tails against sums in 40 digits, from k = 1 to 10^6 and from p = 1e-12 to 1 - 1e-12."""

import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests import reference
from tests.functional.cases import as_tensor, relative_error
from tests.kernels.cases import needs_native
from torch_boc.functional import binomial_log_tail, binomial_tail
from torch_boc.kernels import use

SMALL = (1, 2, 20, 100)
LARGE = (1000, 1001, 1_000_000)
# Of p = 1e-12 and so on, up to 1 - 1e-12.
ODDS = (1e12, 1e6, 999.0, 9.0, 2.5, 1.0, 0.3, 1 / 9, 1e-3, 1e-6, 1e-12)
UNDERFLOW = -708.0  # the log of the smallest normal number


def log_tail(wins, trials, odds):
    return binomial_log_tail(torch.tensor(wins), trials, torch.tensor(odds, dtype=torch.float64))


@pytest.fixture(params=["torch", pytest.param("native", marks=needs_native)])
def way(request):
    with use(request.param):
        yield


def assert_accurate(actual, expected):
    """A relative error of 1e-10 of the tail, or of its logarithm where the tail underflows."""
    exact = as_tensor(expected)
    allowed = torch.where(exact < UNDERFLOW, -exact, 1.0) * 1e-10
    error = relative_error(actual, expected) * exact.abs()
    worst = (error / allowed).argmax()
    assert (error <= allowed).all(), f"log tail {exact[worst]}: error {error[worst]:.2g}, allowed {allowed[worst]:.2g}"


def telling_wins(trials, odds):
    """The ends, the middle, and both sides of the mean at several standard deviations."""
    mean = trials / (1 + odds)
    deviation = (mean * odds / (1 + odds)) ** 0.5
    near = {round(mean + t * deviation) + step for t in (-30, -6, -1, 0, 1, 6, 30) for step in (0, 1)}
    return sorted(w for w in near | {1, 2, trials // 2, trials - 1, trials} if 1 <= w <= trials)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("odds", ODDS)
@pytest.mark.parametrize("trials", [*SMALL, *LARGE])
def test_every_count_of_few_trials_and_telling_counts_of_many(trials, odds):
    wins = list(range(trials + 1)) if trials in SMALL else telling_wins(trials, odds)
    expected = [reference.binomial_log_tail(w, trials, odds, digits=30) for w in wins]
    assert_accurate(log_tail(wins, trials, odds), expected)


@pytest.mark.parametrize("trials", [1, 20, 100, 10_000, 1_000_000])
def test_the_logarithm_goes_far_below_where_the_tail_underflows(trials):
    odds = [1e3, 1e12, 1e100, 1e300]
    expected = [reference.binomial_log_tail(trials, trials, x) for x in odds]
    actual = binomial_log_tail(torch.tensor(trials), trials, torch.tensor(odds, dtype=torch.float64))
    assert relative_error(actual, expected).max() <= 1e-13
    assert trials < 10_000 or actual.min() < -1e6


@pytest.mark.parametrize("odds", [1e-3, 1e-6, 1e-12, 1e-30])
@pytest.mark.parametrize("trials", [1, 20, 100, 10_000])
def test_the_logarithm_keeps_what_is_missing_to_one(trials, odds):
    """Near 1 the tail rounds; its logarithm, minus the chance of too few wins, does not."""
    wins = [max(1, int(trials / (1 + odds)) - step) for step in range(5)]
    expected = [reference.binomial_log_tail(w, trials, odds, digits=200) for w in wins]
    assert relative_error(log_tail(wins, trials, odds), expected).max() <= 1e-10


@given(st.integers(1, 3000), st.floats(0, 1), st.floats(-30, 30))
def test_any_tail(trials, share, log_odds):
    wins, odds = max(1, round(share * trials)), 2.0**log_odds
    assert_accurate(log_tail([wins], trials, odds), [reference.binomial_log_tail(wins, trials, odds)])


@pytest.mark.parametrize("trials", SMALL)
@pytest.mark.parametrize("probability", [1e-12, 1e-3, 0.1, 0.5, 0.9, 0.999, 1 - 1e-12])
def test_the_tail_of_a_probability_agrees_with_scipy(trials, probability):
    wins = torch.arange(-1, trials + 3)
    expected = torch.from_numpy(scipy.stats.binom.sf(wins.numpy() - 1, trials, probability))
    actual = binomial_tail(wins, trials, torch.tensor(probability, dtype=torch.float64))
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-290)
