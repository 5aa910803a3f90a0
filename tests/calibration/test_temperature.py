"""The fit of the temperature: against SciPy, by its laws, and where there is no best temperature."""

import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from tests.calibration.cases import drawn_split, mean_nll, nll_slope
from torch_boc.calibration import TemperatureScaling
from torch_boc.core import blocks


def fitted_temperature(logits, target):
    return TemperatureScaling().fit(logits, target).temperature


@pytest.mark.parametrize(("samples", "classes"), [(100, 3), (3000, 10), (500, 100)])
@pytest.mark.parametrize("true", [0.05, 0.2, 1.0, 5.0, 50.0])
def test_equals_scipy_and_is_near_the_truth(true, samples, classes):
    logits, target = drawn_split(samples, classes, temperature=true)
    found = fitted_temperature(logits, target)
    near = (math.log(true) - 0.1, math.log(true) + 0.1)
    theirs = minimize_scalar(
        lambda x: mean_nll(logits, target, math.exp(x)), bracket=near, options={"xtol": 1e-10}, method="brent"
    )
    assert found == pytest.approx(math.exp(theirs.x), rel=1e-6)
    assert found == pytest.approx(true, rel=0.25)


@pytest.mark.parametrize("true", [0.05, 1.0, 50.0])
@pytest.mark.parametrize("scale", [0.3, 30.0])
def test_converges_for_flat_and_for_sharp_logits(true, scale):
    logits, target = drawn_split(3000, temperature=true, scale=scale)
    found = fitted_temperature(logits, target)
    assert nll_slope(logits, target, found * (1 - 1e-6)) < 0 < nll_slope(logits, target, found * (1 + 1e-6))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("true", [0.05, 50.0])
def test_narrow_logits_are_fitted_in_float64(dtype, true):
    logits, target = drawn_split(temperature=true)
    narrow = logits.to(dtype)
    assert fitted_temperature(narrow, target) == fitted_temperature(narrow.double(), target)


@pytest.mark.parametrize("factor", [0.01, 0.7, 40.0])
def test_temperature_scales_with_the_logits(factor):
    logits, target = drawn_split()
    expected = factor * fitted_temperature(logits, target)
    assert fitted_temperature(factor * logits, target) == pytest.approx(expected, rel=1e-6)


def test_shifts_of_rows_and_permutations_change_nothing():
    logits, target = drawn_split()
    expected = fitted_temperature(logits, target)
    shift = 100 * torch.randn(len(logits), 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert fitted_temperature(logits + shift, target) == pytest.approx(expected, rel=1e-7)
    assert fitted_temperature(logits.flip(1), logits.shape[1] - 1 - target) == pytest.approx(expected, rel=1e-7)
    assert fitted_temperature(logits.flip(0), target.flip(0)) == pytest.approx(expected, rel=1e-7)
    assert fitted_temperature(logits.T.contiguous().T, target) == pytest.approx(expected, rel=1e-7)


def test_blocks_are_the_whole(monkeypatch):
    logits, target = drawn_split()
    expected = fitted_temperature(logits, target)
    monkeypatch.setattr(blocks, "CPU_ELEMENTS_PER_THREAD", 64)
    assert fitted_temperature(logits, target) == pytest.approx(expected, rel=1e-9)


def test_a_masked_class_is_as_good_as_none():
    logits, target = drawn_split(classes=5)
    masked = torch.cat([logits, torch.full((len(logits), 2), -torch.inf)], 1)
    assert fitted_temperature(masked, target) == pytest.approx(fitted_temperature(logits, target), rel=1e-9)


def test_samples_whose_target_is_masked_are_left_out():
    logits, target = drawn_split(200)
    masked = logits.clone()
    masked[:20].scatter_(1, target[:20, None], -torch.inf)
    with pytest.warns(UserWarning, match="20 of 200 samples") as caught:
        found = fitted_temperature(masked, target)
    assert caught[0].filename == __file__
    assert found == pytest.approx(fitted_temperature(logits[20:], target[20:]), rel=1e-9)
    with pytest.raises(ValueError, match="got -inf for the target of every sample"):
        fitted_temperature(masked[:20], target[:20])


@pytest.mark.parametrize("samples", [1, 3, 1000])
def test_separable_data_have_the_lowest_temperature(samples):
    logits, _ = drawn_split(samples)
    with pytest.warns(UserWarning, match=r"every prediction is right.*T = 0\.001"):
        assert fitted_temperature(logits, logits.argmax(1)) == pytest.approx(1e-3, rel=1e-12)


def test_one_error_is_enough_for_a_temperature_within():
    logits, _ = drawn_split(1000)
    target = logits.argmax(1)
    target[0] = logits[0].argmin()
    found = fitted_temperature(logits, target)
    assert nll_slope(logits, target, found * (1 - 1e-6)) < 0 < nll_slope(logits, target, found * (1 + 1e-6))


def test_logits_that_know_less_than_nothing_have_the_highest_temperature():
    logits, _ = drawn_split(1000)
    with pytest.warns(UserWarning, match="T = 1000") as caught:
        assert fitted_temperature(logits, logits.argmin(1)) == pytest.approx(1e3, rel=1e-12)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("value", [0.0, 0.1, -1e6])
def test_constant_logits_have_temperature_one(value):
    with pytest.warns(UserWarning, match="all equal"):
        assert fitted_temperature(torch.full((7, 3), value), torch.arange(7) % 3) == 1.0


@pytest.mark.parametrize("narrow", [torch.float16, torch.float32, torch.float64])
def test_probabilities_are_warned_of(narrow):
    logits, target = drawn_split()
    with pytest.warns(UserWarning, match="looks like probabilities"):
        fitted_temperature(logits.softmax(1).to(narrow), target)


def test_inference_mode_and_gradients_are_no_obstacle():
    logits, target = drawn_split(200)
    expected = fitted_temperature(logits, target)
    assert fitted_temperature(logits.clone().requires_grad_(), target) == expected
    with torch.inference_mode():
        assert fitted_temperature(logits, target) == expected


ROWS = st.lists(st.tuples(*[st.integers(-30, 30)] * 3, st.integers(0, 2)), min_size=1, max_size=12)


@given(ROWS, st.sampled_from([0.01, 1.0, 10.0]))
def test_no_other_temperature_is_better(rows, unit):
    """Any few samples: the slope changes its sign at T, or T is a bound and a warning says so."""
    table = torch.tensor(rows, dtype=torch.float64)
    logits, target = table[:, :3] * unit, table[:, 3].long()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = fitted_temperature(logits, target)
    said = any("T = " in str(warning.message) for warning in caught)
    if said:
        assert found in (pytest.approx(1e-3), 1.0, pytest.approx(1e3))
        return
    nearby = [mean_nll(logits, target, found * factor) for factor in (0.5, 0.99, 1.01, 2.0)]
    assert mean_nll(logits, target, found) <= min(nearby) + 1e-15
    assert nll_slope(logits, target, found * (1 - 1e-5)) <= 1e-14 / found
    assert nll_slope(logits, target, found * (1 + 1e-5)) >= -1e-14 / found
