"""The paper's own numbers and statements, checked: what holds, and what does not."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import poisson_binomial_tail
from torch_boc.functional import binomial_tail


def hoeffding(trials, epsilon):
    """Corollary on the choice of k: Pr{|W/k - dominance| >= epsilon} <= 2 exp(-2 k epsilon^2)."""
    return 2 * math.exp(-2 * trials * epsilon**2)


def tail(wins, trials, probability):
    return binomial_tail(torch.tensor(wins), trials, torch.tensor(probability, dtype=torch.float64)).item()


def far_from_the_mean(trials, probability, epsilon):
    """Pr{|W/k - p| >= epsilon} for W ~ Binomial(k, p), from the two tails; 1e-9 absorbs the rounding of k (p + e)."""
    above = tail(math.ceil(trials * (probability + epsilon) - 1e-9), trials, probability)
    below = 1 - tail(math.floor(trials * (probability - epsilon) + 1e-9) + 1, trials, probability)
    return above + below


def test_the_bounds_for_100_and_200_trials():
    """Printed as 6.7e-4, and as 2.1e-7, which is less than the bound: 2 exp(-16) is 2.25e-7."""
    assert hoeffding(100, 0.2) == pytest.approx(6.7e-4, rel=2e-3)
    assert hoeffding(200, 0.2) == pytest.approx(2.25e-7, rel=2e-3)


@pytest.mark.parametrize("trials", [20, 50, 100, 200])
@pytest.mark.parametrize("probability", [0.5, 0.7, 0.9, 0.99])
@pytest.mark.parametrize("epsilon", [0.05, 0.1, 0.2])
def test_the_wins_keep_to_the_bound(trials, probability, epsilon):
    assert 0 <= far_from_the_mean(trials, probability, epsilon) <= hoeffding(trials, epsilon)


def test_the_lemma_is_false_at_the_mean_and_below():
    """Lemma: Pr{X >= t} <= Pr{Binomial(k, mean/k) >= t} for all t. Two sure wins and two sure losses, t = 1."""
    assert poisson_binomial_tail([1.0, 1.0, 0.0, 0.0], 1) > tail(1, 4, 0.5) == pytest.approx(15 / 16, rel=1e-12)
    assert poisson_binomial_tail([0.9, 0.1], 1) > 0.9 > tail(1, 2, 0.5) == pytest.approx(0.75, rel=1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_the_lemma_holds_from_one_above_the_mean(chances):
    """As Hoeffding proved it: for t >= mean + 1."""
    mean = sum(chances)
    for wins in range(math.ceil(mean + 1), len(chances) + 1):
        bound = tail(wins, len(chances), mean / len(chances))
        assert poisson_binomial_tail(chances, wins) <= bound * (1 + 1e-9) + 1e-15


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_the_lemma_turns_round_one_below_the_mean(chances):
    mean = sum(chances)
    for wins in range(1, math.floor(mean - 1) + 1):
        bound = tail(wins, len(chances), mean / len(chances))
        assert poisson_binomial_tail(chances, wins) >= bound - 1e-12
