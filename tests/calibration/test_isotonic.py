"""Isotonic calibration: against scikit-learn, and by its laws."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from tests.calibration.cases import drawn_split
from torch_boc.calibration import IsotonicCalibration, Uncalibrated


def test_equals_scikit_learn():
    logits, target = drawn_split(1000, temperature=3.0)
    others, _ = drawn_split(500, temperature=3.0, seed=1)
    confidence, prediction = logits.softmax(1).max(1)
    direct = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    direct.fit(confidence.numpy(), (prediction == target).double().numpy())
    result = IsotonicCalibration().fit(logits, target).calibrate(others)
    expected = torch.from_numpy(direct.predict(others.softmax(1).amax(1).numpy()))
    torch.testing.assert_close(result.confidence, expected, rtol=1e-9, atol=1e-12)
    assert torch.equal(result.prediction, others.argmax(1))


def test_mean_confidence_on_its_own_split_is_the_accuracy():
    logits, target = drawn_split(700, temperature=4.0)
    result = IsotonicCalibration().fit(logits, target).calibrate(logits)
    accuracy = (logits.argmax(1) == target).double().mean()
    torch.testing.assert_close(result.confidence.mean(), accuracy, rtol=1e-9, atol=0)


ROWS = st.lists(st.tuples(*[st.floats(-20, 20, width=32)] * 3, st.integers(0, 2)), min_size=1, max_size=20)


@given(ROWS, ROWS)
def test_never_falls_where_the_confidence_rises(rows, others):
    table, other = torch.tensor(rows, dtype=torch.float64), torch.tensor(others, dtype=torch.float64)[:, :3]
    calibrator = IsotonicCalibration().fit(table[:, :3] + 30, table[:, 3].long())  # + 30: no probabilities
    confidence = calibrator.calibrate(other).confidence
    order = Uncalibrated().calibrate(other).confidence.argsort()
    assert bool((confidence[order].diff() >= 0).all())
    assert bool(((confidence >= 0) & (confidence <= 1)).all())


@pytest.mark.parametrize(("target", "expected"), [(0, 1.0), (1, 0.0)])
def test_one_sample(target, expected):
    calibrator = IsotonicCalibration().fit(torch.tensor([[2.0, 0.0, 1.0]]), torch.tensor([target]))
    assert calibrator.calibrate(torch.tensor([[9.0, 0.0, 0.0], [0.1, 0.0, 0.0]])).confidence.tolist() == [expected] * 2


def test_confidences_that_float32_takes_for_one_are_told_apart():
    """Odds of e^-20 and e^-28 are both 0 beside 1 in float32; the first kind is wrong, the second right."""
    logits = torch.tensor([[20.0, 0.0]] * 5 + [[28.0, 0.0]] * 5)
    calibrator = IsotonicCalibration().fit(logits, torch.tensor([1] * 5 + [0] * 5))
    torch.testing.assert_close(calibrator.calibrate(logits).confidence, torch.tensor([0.0] * 5 + [1.0] * 5).double())
