"""The paper's lemma on the wins, checked: where it holds, and where it does not."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import poisson_binomial_tail
from torch_boc.functional import binomial_tail


def tail(wins, trials, probability):
    return binomial_tail(torch.tensor(wins), trials, torch.tensor(probability, dtype=torch.float64)).item()


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
