"""The paper's statements on tails, checked: what holds, and what does not."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_boc.functional import binomial_tail


def tail(wins, trials, probability):
    return binomial_tail(torch.tensor(wins), trials, torch.tensor(probability, dtype=torch.float64)).item()


def poisson_binomial_tail(chances, wins):
    """Pr{sum of independent Bernoulli(chances) >= wins}, one coin at a time."""
    masses = torch.ones(1, dtype=torch.float64)
    for chance in chances:
        lost, won = (torch.nn.functional.pad(masses, ends) for ends in ((0, 1), (1, 0)))
        masses = (1 - chance) * lost + chance * won
    return masses[wins:].sum().item()


def test_hoeffding_s_bound():
    """Of 200 trials it is 2.25e-7, and not 2.1e-7 as printed; the wins keep to it."""
    assert 2 * math.exp(-2 * 200 * 0.2**2) == pytest.approx(2.25e-7, rel=2e-3)
    for trials, probability in ((20, 0.5), (100, 0.7), (200, 0.6)):
        above = tail(math.ceil(trials * (probability + 0.2) - 1e-9), trials, probability)
        below = 1 - tail(math.floor(trials * (probability - 0.2) + 1e-9) + 1, trials, probability)
        assert 0 < above + below <= 2 * math.exp(-2 * trials * 0.2**2)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_the_lemma_holds_above_the_mean_only(chances):
    """The lemma: Pr{X >= t} <= Pr{Binomial(k, mean/k) >= t} for all t. True from 1 above the mean (Hoeffding)."""
    assert poisson_binomial_tail([1.0, 1.0, 0.0, 0.0], 1) > tail(1, 4, 0.5) == pytest.approx(15 / 16, rel=1e-12)
    mean = sum(chances)
    for wins in range(1, len(chances) + 1):
        bound, exact = tail(wins, len(chances), mean / len(chances)), poisson_binomial_tail(chances, wins)
        assert wins < mean + 1 or exact <= bound * (1 + 1e-9) + 1e-15
        assert wins > mean - 1 or exact >= bound - 1e-12
