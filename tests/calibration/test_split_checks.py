"""The test for calibration splits that the classifier was trained on."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, fisher_exact

from torch_boc.calibration import leak_test

COUNTS = {  # and whether they are suspicious
    (4990, 5000, 9170, 10000): True,
    (100, 100, 0, 100): True,
    (917, 1000, 9170, 10000): False,  # the same
    (4585, 5000, 9980, 10000): True,  # the split is the harder one
    (30, 300, 890, 1000): True,  # other labels
    (5, 5, 917, 1000): False,  # too few to say
    (940_000, 1_000_000, 931_000, 1_000_000): False,  # certain, but less than a percentage point
}


@pytest.mark.parametrize("counts", COUNTS)
def test_equals_scipy(counts):
    right, samples, test_right, test_samples = counts
    result = leak_test(*counts)
    table = [[right, samples - right], [test_right, test_samples - test_right]]
    tails = [fisher_exact(table, side).pvalue for side in ("greater", "less")]
    assert result.p_value == pytest.approx(min(1.0, 2 * min(tails)), rel=1e-6)
    assert result[:2] == (right / samples, test_right / test_samples)
    assert result.suspicious == COUNTS[counts]


@pytest.mark.parametrize(("samples", "accuracy"), [(1000, 0.99), (200, 0.9)])
def test_the_level_holds_for_small_test_sets(samples, accuracy):
    """The chance of every outcome is known. The normal approximation has 4.6 times its level in the first case."""
    chances = [(i, x) for i, x in enumerate(binom.pmf(range(samples + 1), samples, accuracy)) if x > 1e-7]
    others = [(i, x) for i, x in enumerate(binom.pmf(range(201), 200, accuracy)) if x > 1e-7]
    found = sum(p * q * (leak_test(a, samples, b, 200).p_value < 1e-3) for a, p in chances for b, q in others)
    assert 1e-4 < found < 1e-3


def test_an_empty_set_is_not_suspicious():
    for counts in ((0, 0, 5, 10), (5, 10, 0, 0), (0, 0, 0, 0)):
        assert math.isnan(leak_test(*counts).p_value)
        assert leak_test(*counts).suspicious is False


@given(*[st.integers(0, 200)] * 2, *[st.integers(0, 200)] * 2)
def test_the_order_of_the_two_sets_does_not_matter(right, wrong, test_right, test_wrong):
    n, m = right + wrong + 1, test_right + test_wrong + 1
    ours, theirs = leak_test(right, n, test_right, m), leak_test(test_right, m, right, n)
    assert ours[2:] == theirs[2:]
