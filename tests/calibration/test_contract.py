"""What holds for every calibrator."""

import pickle
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.calibration.cases import drawn_split
from torch_boc.calibration import (
    Calibrated,
    Calibrator,
    DominanceConfidence,
    IsotonicCalibration,
    TemperatureScaling,
    Uncalibrated,
    VectorScaling,
    calibrators,
)

ALL = [Uncalibrated, TemperatureScaling, IsotonicCalibration, VectorScaling, DominanceConfidence]
FITTED = [TemperatureScaling, IsotonicCalibration, VectorScaling]
UNFITTED = [Uncalibrated, DominanceConfidence]


def test_the_five_are_fresh_and_in_order():
    first, second = calibrators(), calibrators()
    assert [type(x) for x in first] == ALL
    assert all(isinstance(x, Calibrator) for x in first)
    assert not {id(x) for x in first} & {id(x) for x in second}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ALL)
def test_shapes_dtypes_and_range(kind, dtype):
    logits, target = drawn_split(300)
    calibrator = kind()
    assert calibrator.fit(logits.to(dtype), target) is calibrator
    result = calibrator.calibrate(logits[:40].to(dtype).requires_grad_())
    assert isinstance(result, Calibrated)
    assert result.prediction.shape == result.confidence.shape == (40,)
    assert (result.prediction.dtype, result.confidence.dtype) == (torch.int64, torch.float64)
    assert bool(((result.confidence >= 0) & (result.confidence <= 1)).all())
    assert not result.confidence.requires_grad
    assert (result.logits is None) == (kind in (IsotonicCalibration, DominanceConfidence))


@pytest.mark.parametrize("kind", [Uncalibrated, TemperatureScaling, VectorScaling])
def test_confidence_is_that_of_the_calibrated_logits(kind):
    logits, target = drawn_split(300)
    result = kind().fit(logits, target).calibrate(logits)
    confidence, prediction = result.logits.softmax(1).max(1)
    torch.testing.assert_close(result.confidence, confidence, rtol=1e-12, atol=0)
    assert torch.equal(result.prediction, prediction)


@pytest.mark.parametrize("kind", ALL)
def test_each_row_is_calibrated_alone(kind):
    logits, target = drawn_split(300)
    calibrator = kind().fit(logits, target)
    whole = calibrator.calibrate(logits)
    parts = [calibrator.calibrate(part) for part in logits.split(7)]
    torch.testing.assert_close(torch.cat([x.confidence for x in parts]), whole.confidence, rtol=1e-12, atol=0)
    assert torch.equal(torch.cat([x.prediction for x in parts]), whole.prediction)


@pytest.mark.parametrize("kind", [Uncalibrated, TemperatureScaling, IsotonicCalibration, DominanceConfidence])
def test_shifts_of_rows_change_nothing(kind):
    logits, target = drawn_split(300)
    shift = torch.randn(300, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = kind().fit(logits, target).calibrate(logits)
    result = kind().fit(logits + shift, target).calibrate(logits + shift)
    torch.testing.assert_close(result.confidence, expected.confidence, rtol=1e-7, atol=0)
    assert torch.equal(result.prediction, expected.prediction)


@pytest.mark.parametrize("kind", ALL)
def test_pickling(kind):
    logits, target = drawn_split(300)
    calibrator = kind().fit(logits, target)
    result = pickle.loads(pickle.dumps(calibrator)).calibrate(logits)
    assert torch.equal(result.confidence, calibrator.calibrate(logits).confidence)


@pytest.mark.parametrize("kind", FITTED)
def test_an_unfitted_one_says_so(kind):
    with pytest.raises(RuntimeError, match=r"call fit\(logits, target\) first"):
        kind().calibrate(torch.zeros(2, 3))


@pytest.mark.parametrize("kind", UNFITTED)
def test_these_need_no_fit(kind):
    assert kind().calibrate(torch.zeros(2, 4)).confidence.tolist() == [0.5 if kind is DominanceConfidence else 0.25] * 2


@pytest.mark.parametrize("kind", FITTED)
def test_another_number_of_classes_is_an_error(kind):
    calibrator = kind().fit(*drawn_split(300, 5))
    with pytest.raises(ValueError, match=r"expected logits with 5 classes.*got 4"):
        calibrator.calibrate(torch.zeros(2, 4))


BAD_LOGITS = {
    "one axis": (torch.zeros(3), ValueError, "shape"),
    "three axes": (torch.zeros(3, 4, 5), ValueError, "shape"),
    "no rows": (torch.zeros(0, 3), ValueError, "at least one row"),
    "one class": (torch.zeros(3, 1), ValueError, "at least 2 classes"),
    "integers": (torch.zeros(3, 3, dtype=torch.long), TypeError, "floating-point"),
    "a list": ([[0.0, 1.0]], TypeError, "torch.Tensor"),
    "NaN": (torch.tensor([[0.0, 1.0], [torch.nan, 2.0]]), ValueError, "in 1 of 2 rows, first in row 1"),
    "inf": (torch.tensor([[torch.inf, 1.0], [0.0, 2.0]]), ValueError, "first in row 0"),
    "nothing but -inf": (torch.full((2, 2), -torch.inf), ValueError, "in 2 of 2 rows"),
}


@pytest.mark.parametrize("case", BAD_LOGITS)
@pytest.mark.parametrize("kind", ALL)
def test_bad_logits(kind, case):
    logits, error, message = BAD_LOGITS[case]
    with pytest.raises(error, match=message):
        kind().calibrate(logits)
    if kind in FITTED:
        with pytest.raises(error, match=message):
            kind().fit(logits, torch.zeros(len(logits), dtype=torch.long))


BAD_TARGETS = {
    "too large": (torch.tensor([0, 3]), ValueError, r"expected targets in \[0, 3\), got 1 outside, such as 3"),
    "negative": (torch.tensor([-100, 0]), ValueError, "such as -100"),
    "too few": (torch.tensor([0]), ValueError, "shape"),
    "floating": (torch.tensor([0.0, 1.0]), TypeError, "integer"),
    "a list": ([0, 1], TypeError, "torch.Tensor"),
}


@pytest.mark.parametrize("case", BAD_TARGETS)
@pytest.mark.parametrize("kind", FITTED)
def test_bad_targets(kind, case):
    target, error, message = BAD_TARGETS[case]
    with pytest.raises(error, match=message):
        kind().fit(torch.tensor([[1.0, 2.0, 3.0], [1.0, 0.0, 5.0]]), target)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
@pytest.mark.parametrize("kind", FITTED)
def test_targets_of_any_integer_type(kind, dtype):
    logits, target = drawn_split(100)
    expected = kind().fit(logits, target).calibrate(logits)
    assert torch.equal(kind().fit(logits, target.to(dtype)).calibrate(logits).confidence, expected.confidence)


@pytest.mark.parametrize("kind", FITTED)
def test_probabilities_are_warned_of(kind):
    logits, target = drawn_split(100)
    with pytest.warns(UserWarning, match="looks like probabilities") as caught:
        kind().fit(logits.softmax(1), target)
    assert caught[0].filename == __file__  # the line that called fit, not one of ours


@pytest.mark.parametrize("kind", [IsotonicCalibration, VectorScaling])
@pytest.mark.parametrize("module", ["sklearn", "sklearn.isotonic", "sklearn.linear_model"])
def test_without_scikit_learn_the_error_names_the_extra(monkeypatch, kind, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'torch-boc\[eval\]'"):
        kind().fit(*drawn_split(20))


@given(st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=4, max_size=4), min_size=1, max_size=6))
def test_dominance_is_never_below_the_softmax(rows):
    logits = torch.tensor(rows)
    msp, boc = Uncalibrated().calibrate(logits), DominanceConfidence().calibrate(logits)
    assert torch.equal(msp.prediction, boc.prediction)
    assert bool((boc.confidence >= msp.confidence - 1e-7).all())
    assert bool((boc.confidence <= 1).all())
