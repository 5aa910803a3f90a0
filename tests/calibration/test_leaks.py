"""The test for calibration splits that the classifier was trained on."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, norm

from torch_boc.calibration import leak_test

COUNTS = {  # and whether they are suspicious
    (4990, 5000, 9170, 10000): True,
    (100, 100, 0, 100): True,
    (917, 1000, 9170, 10000): False,  # the same
    (4585, 5000, 9980, 10000): False,  # the test set is the easier one
    (5, 5, 917, 1000): False,  # too few to say
    (940_000, 1_000_000, 931_000, 1_000_000): False,  # certain, but less than a percentage point
}


@pytest.mark.parametrize("counts", COUNTS)
def test_equals_scipy(counts):
    right, samples, test_right, test_samples = counts
    result = leak_test(*counts)
    table = [[right, samples - right], [test_right, test_samples - test_right]]
    statistic = chi2_contingency(np.array(table), correction=False).statistic
    assert abs(result.z) == pytest.approx(math.sqrt(statistic), rel=1e-9)
    assert result.p_value == pytest.approx(norm.sf(result.z), rel=1e-9)
    assert result[:2] == (right / samples, test_right / test_samples)
    assert result.suspicious == COUNTS[counts]


def test_equal_accuracies_are_a_coin_flip():
    for right in (0, 30, 100):
        assert leak_test(right, 100, right, 100)[2:] == (0.0, 0.5, False)


@pytest.mark.parametrize("counts", [(0, 0, 5, 10), (5, 10, 0, 0), (0, 0, 0, 0)])
def test_without_samples_there_is_no_evidence(counts):
    result = leak_test(*counts)
    assert math.isnan(result.z)
    assert math.isnan(result.p_value)
    assert result.suspicious is False


@pytest.mark.parametrize("counts", [(11, 10, 5, 10), (5, 10, -1, 10), (0, -1, 5, 10)])
def test_impossible_counts(counts):
    with pytest.raises(ValueError, match="right predictions"):
        leak_test(*counts)


@given(*[st.integers(0, 200)] * 2, *[st.integers(0, 200)] * 2)
def test_exchanging_the_two_turns_the_sign(right, wrong, test_right, test_wrong):
    n, m = right + wrong + 1, test_right + test_wrong + 1
    ours, theirs = leak_test(right, n, test_right, m), leak_test(test_right, m, right, n)
    assert ours.z == pytest.approx(-theirs.z)
    assert ours.p_value + theirs.p_value == pytest.approx(1)
    assert not (ours.suspicious and theirs.suspicious)
