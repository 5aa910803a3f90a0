"""The reference against numbers that can be had by hand, or from SciPy where SciPy is right."""

import math
from fractions import Fraction

import pytest
import scipy.stats
import torch
from mpmath import mp

from tests import reference
from tests.functional.cases import as_tensor, random_logits


def exact_tail(wins, trials, odds):
    """The sum of the masses in fractions: odds of n against m are a chance of m in n + m."""
    p = 1 / (1 + Fraction(odds))
    return sum(math.comb(trials, i) * p**i * (1 - p) ** (trials - i) for i in range(max(wins, 0), trials + 1))


@pytest.mark.parametrize("odds", [Fraction(1, 1000), Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(10**9)])
@pytest.mark.parametrize("trials", [1, 2, 13, 40])
def test_tails_are_those_of_fractions(trials, odds):
    for wins in range(1, trials + 1):
        exact = exact_tail(wins, trials, odds)
        with mp.workdps(30):
            odds_mp = mp.mpf(odds.numerator) / odds.denominator
            tail = mp.exp(reference.binomial_log_tail(wins, trials, odds_mp))
            assert abs(tail * exact.denominator / exact.numerator - 1) < 1e-20


@pytest.mark.parametrize("trials", [1, 5])
def test_tails_outside_their_range(trials):
    assert reference.binomial_log_tail(0, trials, 1.0) == 0
    assert reference.binomial_log_tail(-3, trials, 1.0) == 0
    assert reference.binomial_log_tail(trials + 1, trials, 1.0) == -mp.inf


def test_tails_of_many_trials_agree_with_the_normal_law():
    """Half a million heads in a million: 1/2 and half the mass in the middle."""
    tail = mp.exp(reference.binomial_log_tail(500_000, 1_000_000, 1.0))
    assert float(tail) == pytest.approx(0.5 + 0.5 * scipy.stats.binom.pmf(500_000, 1_000_000, 0.5), rel=1e-9)


def test_the_probe_of_a_row_by_hand():
    """Weights 4, 2, 1: confidence 4/7, coins 4/6 and 4/5; odds 3/4, so the bounds are 1/(1 + 3/8) and (4/7 + 1)/2."""
    probe = reference.probe([math.log(4), math.log(2), 0.0])
    dominance, lower, upper = Fraction(11, 15), Fraction(8, 11), Fraction(11, 14)
    assert probe.prediction == 0
    assert float(probe.confidence) == pytest.approx(4 / 7, rel=1e-15)
    assert float(probe.odds) == pytest.approx(3 / 4, rel=1e-15)
    assert float(probe.dominance) == pytest.approx(float(dominance), rel=1e-15)
    assert float(probe.loss) == pytest.approx(4 / 15, rel=1e-15)
    assert float(probe.gap) == pytest.approx(11 / 15 - 4 / 7, rel=1e-14)
    assert float(probe.lower) == pytest.approx(float(lower), rel=1e-15)
    assert float(probe.upper) == pytest.approx(float(upper), rel=1e-15)
    assert float(probe.concentration) == pytest.approx(float((dominance - lower) / (upper - lower)), rel=1e-12)


def test_expected_wins_round_half_to_even():
    assert [reference.expected_wins([0.0, 0.0], trials) for trials in (1, 3, 5, 100)] == [0, 2, 2, 50]


def test_a_poisson_binomial_of_equal_chances_is_binomial():
    for wins in range(-1, 8):
        expected = scipy.stats.binom.sf(wins - 1, 6, 0.3)
        assert reference.poisson_binomial_tail([0.3] * 6, wins) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 50])
def test_the_obvious_probe_agrees_where_float64_is_enough(classes):
    z = random_logits(6, classes, scale=1.5)
    obvious = reference.obvious_probe(z, trials=50)
    probes = [reference.probe(row) for row in z.tolist()]
    assert obvious["prediction"].tolist() == [probe.prediction for probe in probes]
    for name in ("confidence", "dominance", "gap"):
        expected = as_tensor([getattr(probe, name) for probe in probes])
        torch.testing.assert_close(obvious[name], expected, rtol=1e-12, atol=1e-14)
    p_values = as_tensor([mp.exp(reference.log_p_value(row, 50)) for row in z.tolist()])
    torch.testing.assert_close(obvious["p_value"], p_values, rtol=1e-9, atol=0)
