"""What holds for every calibrator, each against an outside reference, and what becomes of hard data."""

import copy
import io
import math
import pickle
import sys
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from torch import nn

from tests.calibration.cases import drawn_split, mean_nll
from torch_boc import zoo
from torch_boc.calibration import (
    DominanceConfidence,
    IsotonicCalibration,
    MatrixScaling,
    TemperatureScaling,
    Uncalibrated,
    VectorScaling,
    matrix,
)

FITTED = [TemperatureScaling, IsotonicCalibration, MatrixScaling, VectorScaling]
ALL = [Uncalibrated, *FITTED, DominanceConfidence]


def fitted_temperature(logits, target):
    return TemperatureScaling().fit(logits, target).temperature


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
@pytest.mark.parametrize("kind", ALL)
def test_the_contract(kind, dtype):
    logits, target = drawn_split(300)
    calibrator = kind()
    assert calibrator.fit(logits.to(dtype), target.int()) is calibrator
    result = calibrator.calibrate(logits[:40].to(dtype).requires_grad_())
    assert (result.prediction.dtype, result.confidence.dtype) == (torch.int64, torch.float64)
    assert bool(((result.confidence >= 0) & (result.confidence <= 1)).all())
    assert not result.confidence.requires_grad
    assert (result.logits is not None) == kind.gives_logits
    if result.logits is not None:
        torch.testing.assert_close(result.confidence, result.logits.double().softmax(1).amax(1), rtol=1e-6, atol=0)
    parts = [pickle.loads(pickle.dumps(calibrator)).calibrate(part.to(dtype)) for part in logits[:40].split(7)]
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6  # products of narrower logits are in float32
    torch.testing.assert_close(torch.cat([x.confidence for x in parts]), result.confidence, rtol=tolerance, atol=0)
    assert torch.equal(torch.cat([x.prediction for x in parts]), result.prediction)
    if kind is not MatrixScaling:
        shifted = kind().fit(logits + 3, target).calibrate(logits + 3)
        expected = kind().fit(logits, target).calibrate(logits)
        torch.testing.assert_close(shifted.confidence, expected.confidence, rtol=1e-7, atol=0)


ROW, ZERO = torch.tensor([[1.0, 2.0, 3.0], [1.0, 0.0, 5.0]]), torch.zeros(2).long()
BAD = {
    "one axis": (torch.zeros(3), torch.zeros(3).long(), ValueError, "shape"),
    "no rows": (torch.zeros(0, 3), torch.zeros(0).long(), ValueError, "at least one row"),
    "integers": (ROW.long(), ZERO, TypeError, "floating-point"),
    "NaN": (ROW + torch.tensor([[0.0], [torch.nan]]), ZERO, ValueError, "1 of 2 rows, first in row 1"),
    "only -inf": (torch.full((2, 2), -torch.inf), ZERO, ValueError, "in 2 of 2 rows"),
    "a target too large": (ROW, torch.tensor([0, 3]), ValueError, r"expected targets in \[0, 3\), got 1 .* such as 3"),
    "a negative target": (ROW, torch.tensor([-100, 0]), ValueError, "such as -100"),
    "too few targets": (ROW, torch.tensor([0]), ValueError, "shape"),
    "floating targets": (ROW, torch.tensor([0.0, 1.0]), TypeError, "integer"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("kind", FITTED)
def test_bad_input(kind, case):
    logits, target, error, message = BAD[case]
    with pytest.raises(error, match=message):
        kind().fit(logits, target)
    if logits is not ROW:
        with pytest.raises(error, match=message):
            kind().calibrate(logits)


@pytest.mark.parametrize("kind", FITTED)
def test_what_is_said_of_a_fit(kind, monkeypatch):
    with pytest.raises(RuntimeError, match=r"call fit\(logits, target\) first"):
        kind().calibrate(ROW)
    logits, target = drawn_split(100)
    with pytest.raises(ValueError, match=r"expected logits with 5 classes.*got 3"):
        kind().fit(logits, target).calibrate(ROW)
    with pytest.warns(UserWarning, match="looks like probabilities") as caught:
        kind().fit(logits.softmax(1), target)
    assert caught[0].filename == __file__  # the line that called fit, not one of ours
    if kind is IsotonicCalibration:
        monkeypatch.setitem(sys.modules, "scipy", None)
        with pytest.raises(ImportError, match=r"pip install 'torch-boc\[eval\]'"):
            kind().fit(logits, target)


@given(st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=4, max_size=4), min_size=1, max_size=6))
def test_dominance_is_never_below_the_softmax(rows):
    logits = torch.tensor(rows)
    msp, boc = Uncalibrated().calibrate(logits), DominanceConfidence().calibrate(logits)
    assert torch.equal(msp.prediction, boc.prediction)
    assert bool((boc.confidence >= msp.confidence - 1e-7).all())
    assert bool((boc.confidence <= 1).all())


def penalized(logits, target, temperature):
    """The mean loss with the prior of T."""
    return mean_nll(logits, target, temperature) + math.log(temperature) ** 2 / 2 / len(target)


@pytest.mark.parametrize(("samples", "classes"), [(100, 3), (500, 100)])
@pytest.mark.parametrize("true", [0.05, 1.0, 50.0])
def test_temperature_equals_scipy_and_is_near_the_truth(true, samples, classes):
    logits, target = drawn_split(samples, classes, temperature=true)
    found = fitted_temperature(logits, target)
    near = (math.log(true) - 0.1, math.log(true) + 0.1)
    theirs = minimize_scalar(lambda x: penalized(logits, target, math.exp(x)), bracket=near, options={"xtol": 1e-10})
    assert found == pytest.approx(math.exp(theirs.x), rel=1e-6)
    assert found == pytest.approx(true, rel=0.25)
    assert fitted_temperature(3 * logits, target) == pytest.approx(3 * found, rel=0.05)
    assert fitted_temperature(logits.half(), target) == fitted_temperature(logits.half().double(), target)
    masked = torch.cat([logits, torch.full((samples, 2), -torch.inf)], 1)
    assert fitted_temperature(masked, target) == pytest.approx(found, rel=1e-9)


def test_temperature_where_targets_are_masked():
    logits, target = drawn_split(200)
    masked = logits.clone()
    masked[:20].scatter_(1, target[:20, None], -torch.inf)
    with pytest.warns(UserWarning, match="20 of 200 samples") as caught:
        found = fitted_temperature(masked, target)
    assert caught[0].filename == __file__
    assert found == pytest.approx(fitted_temperature(logits[20:], target[20:]), rel=1e-9)
    with pytest.raises(ValueError, match="got -inf for the target of every sample"):
        fitted_temperature(masked[:20], target[:20])


ROWS = st.lists(st.tuples(*[st.integers(-30, 30)] * 3, st.integers(0, 2)), min_size=1, max_size=12)


@given(ROWS, st.sampled_from([0.01, 1.0, 10.0]))
def test_no_other_temperature_is_better(rows, unit):
    """Of any few samples."""
    table = torch.tensor(rows, dtype=torch.float64)
    logits, target = table[:, :3] * unit, table[:, 3].long()
    found = fitted_temperature(logits, target)
    nearby = [penalized(logits, target, found * factor) for factor in (0.99, 1.01)]
    assert penalized(logits, target, found) <= min(nearby) + 1e-15


@pytest.mark.parametrize("scale", [1e-4, 1e6])
def test_logits_of_any_scale(scale):
    logits, target = drawn_split(2000)
    expected = scale * fitted_temperature(logits, target)
    assert fitted_temperature(logits * scale, target) == pytest.approx(expected, rel=0.1)


def test_temperature_of_samples_that_are_all_right_serves_others():
    """Without the prior T falls to 0, and one later mistake costs the loss of many samples."""
    logits, target = drawn_split(20_000, scale=20.0)
    right = (logits.argmax(1) == target).nonzero()[:300, 0]
    found = fitted_temperature(logits[right], target[right])
    assert mean_nll(logits, target, 1e-3) > 40
    assert mean_nll(logits, target, found) < 3 * mean_nll(logits, target, 1.0) < 0.4
    assert fitted_temperature(torch.full((7, 3), 0.1), torch.arange(7) % 3) == pytest.approx(1.0)


@pytest.mark.parametrize("true", [0.3, 1.0, 5.0])
def test_the_prior_costs_little(true):
    logits, target = drawn_split(1000, 10, temperature=true)
    loss = partial(mean_nll, logits, target)
    best = minimize_scalar(lambda x: loss(math.exp(x)), bounds=(-3, 3))
    assert loss(fitted_temperature(logits, target)) - best.fun <= 1e-4


def test_temperature_as_a_module():
    scaling = TemperatureScaling().fit(*drawn_split(500, temperature=1.7))
    logits = drawn_split(20)[0].requires_grad_()
    torch.compile(scaling, fullgraph=True, backend="eager")(logits).sum().backward()
    torch.testing.assert_close(logits.grad, torch.full_like(logits, 1 / scaling.temperature))
    assert scaling(torch.tensor([[6e4, 1.0]]).half()).dtype == torch.float32
    file = io.BytesIO()
    torch.save(scaling.state_dict(), file)
    file.seek(0)
    other = TemperatureScaling()
    for use in (lambda: other.temperature, lambda: other(logits)):
        with pytest.raises(RuntimeError, match="fit"):
            use()
    other.load_state_dict(torch.load(file, weights_only=True))
    assert (other.temperature, other.num_classes) == (scaling.temperature, 5)
    narrow = nn.Sequential(copy.deepcopy(scaling)).half()[0]
    assert (narrow.temperature, narrow.log_temperature.dtype) == (scaling.temperature, torch.float64)
    assert nn.Sequential(narrow).to("meta")[0].log_temperature.device.type == "meta"
    assert repr(scaling) == f"TemperatureScaling(temperature={scaling.temperature:.4g})"
    assert repr(TemperatureScaling()) == "TemperatureScaling(not fitted)"
    assert list(scaling.parameters()) == []


def test_predictions_stay_even_where_quotients_tie():
    scaling = TemperatureScaling().fit(*drawn_split(500, temperature=2.3))
    # Two neighbouring numbers, as they are in float32 above 8: some of their quotients are the same number.
    second = torch.linspace(8, 16, 4001)
    close = torch.stack([torch.zeros(4001), second, second.nextafter(torch.tensor(20.0)), *torch.zeros(2, 4001)], 1)
    scaled = scaling(close)
    assert bool((scaled[:, 1] == scaled[:, 2]).any())
    assert bool((scaling.calibrate(close).prediction == 2).all())


def test_isotonic_equals_scikit_learn():
    logits, target = drawn_split(1000, temperature=3.0)
    others, _ = drawn_split(500, temperature=3.0, seed=1)
    confidence, prediction = logits.softmax(1).max(1)
    direct = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    direct.fit(confidence.numpy(), (prediction == target).double().numpy())
    result = IsotonicCalibration().fit(logits, target).calibrate(others)
    expected = torch.from_numpy(direct.predict(others.softmax(1).amax(1).numpy()))
    torch.testing.assert_close(result.confidence, expected, rtol=1e-9, atol=1e-12)
    assert torch.equal(result.prediction, others.argmax(1))


def test_isotonic_separates_confidences_that_are_1_in_float32():
    """Odds of e^-20 are wrong, those of e^-28 correct."""
    logits = torch.tensor([[20.0, 0.0]] * 5 + [[28.0, 0.0]] * 5)
    calibrator = IsotonicCalibration().fit(logits, torch.tensor([1] * 5 + [0] * 5))
    assert calibrator.calibrate(logits).confidence.tolist() == [0.0] * 5 + [1.0] * 5


def scikit_learn_probabilities(logits, target, others):
    direct = LogisticRegression(max_iter=10_000, tol=1e-8)
    return torch.from_numpy(direct.fit(logits.numpy(), target.numpy()).predict_proba(others.numpy()))


@pytest.mark.parametrize("classes", [2, 7])
def test_matrix_scaling_equals_scikit_learn(classes):
    logits, target = drawn_split(800, classes, temperature=2.0)
    expected = scikit_learn_probabilities(logits, target, logits)
    result = MatrixScaling().fit(logits, target).calibrate(logits)
    torch.testing.assert_close(result.logits.softmax(1), expected, rtol=3e-3, atol=1e-5)


def test_matrix_scaling_by_its_laws():
    """Shifts of columns, and of all far from zero in float32."""
    logits, target = drawn_split(500)
    expected = MatrixScaling().fit(logits, target).calibrate(logits).confidence
    shifted = logits + torch.arange(5.0).double()
    for changed in (shifted, (logits + 1000).float()):
        found = MatrixScaling().fit(changed, target).calibrate(changed).confidence
        torch.testing.assert_close(found, expected, rtol=1e-3 if changed.dtype == torch.float32 else 1e-5, atol=0)
    bias = torch.tensor([3.0, 0.0, 0.0, -2.0, 0.0])  # which no temperature corrects
    corrected = MatrixScaling().fit(logits + bias, target).calibrate(logits + bias).logits
    assert mean_nll(corrected, target) < mean_nll(logits, target) < mean_nll(logits + bias, target) / 1.2


def test_vector_scaling_equals_scipy():
    """The written objective at the fitted temperature, with slopes by differences, minimised from elsewhere."""
    logits, target = drawn_split(400, 3, temperature=2.0)
    logits = logits + torch.tensor([1.5, 0.0, 0.0])
    chances = log_softmax(logits.numpy() / fitted_temperature(logits, target), axis=1)

    def objective(weights):
        scaled = (1 + weights[:3]) * chances + weights[3:]
        return mean_nll(torch.from_numpy(scaled), target) + 100 / 400 * (weights**2).sum()

    found = minimize(objective, [0.1] * 6, tol=1e-12).x
    expected = torch.from_numpy((1 + found[:3]) * chances + found[3:])
    result = VectorScaling().fit(logits, target).calibrate(logits)
    torch.testing.assert_close(result.logits, expected, rtol=1e-4, atol=1e-5)
    masked = torch.cat([logits, torch.full((400, 1), -torch.inf)], 1)
    with_mask = VectorScaling().fit(masked, target).calibrate(masked)
    torch.testing.assert_close(with_mask.confidence, result.confidence, rtol=1e-6, atol=0)
    assert mean_nll(result.logits, target) < mean_nll(torch.from_numpy(chances), target) - 0.002


@pytest.mark.parametrize("name", zoo.names())
def test_vector_scaling_loses_nothing_on_the_zoo(name):
    """Against temperature scaling: at or below its log loss, and with 200 samples within .0032 of it on average."""
    test, splits = zoo.load(name).test_and_splits()
    held_out, kinds = next(iter(splits.values())), (VectorScaling, TemperatureScaling)

    def gain(rows):
        made = [kind().fit(held_out.logits[rows], held_out.target[rows]).calibrate(test.logits) for kind in kinds]
        return mean_nll(made[1].logits, test.target) - mean_nll(made[0].logits, test.target)

    assert gain(slice(None)) >= 0
    orders = [torch.randperm(len(held_out), generator=torch.Generator().manual_seed(seed)) for seed in range(5)]
    assert sum(gain(order[:200]) for order in orders) / 5 >= -0.0032


def test_matrix_scaling_of_missing_and_masked_classes():
    logits, target = drawn_split(400, 4)
    present = target != 1
    seen, labels = logits[present], target[present]
    result = MatrixScaling().fit(seen, labels).calibrate(logits)
    chance = result.logits.softmax(1)
    torch.testing.assert_close(chance[:, 1], torch.full((400,), 1 / (len(seen) + 2), dtype=torch.float64))  # Laplace
    rest = chance[:, [0, 2, 3]] / chance[:, [0, 2, 3]].sum(1, keepdim=True)
    torch.testing.assert_close(rest, scikit_learn_probabilities(seen, labels, logits), rtol=3e-3, atol=1e-5)
    hidden = torch.rand(logits.shape, generator=torch.Generator().manual_seed(2)) < 0.1
    masked, lowest = logits.masked_fill(hidden, -torch.inf), logits[~hidden].min().item()
    expected = MatrixScaling().fit(logits.masked_fill(hidden, lowest), target).calibrate(masked.clamp_min(lowest))
    torch.testing.assert_close(MatrixScaling().fit(masked, target).calibrate(masked).logits, expected.logits)


def test_matrix_scaling_draws_from_a_large_split_the_same_way_each_time(monkeypatch):
    logits, target = drawn_split(4000, 4)
    whole = MatrixScaling().fit(logits, target).calibrate(logits).logits
    monkeypatch.setattr(matrix, "MOST_SAMPLES", 1000)
    some, again = (MatrixScaling().fit(logits, target).calibrate(logits).logits for _ in range(2))
    assert torch.equal(some, again)
    assert not torch.equal(some, whole)
    assert mean_nll(some, target) == pytest.approx(mean_nll(whole, target), rel=0.02)


def test_errors_and_warnings_of_matrix_scaling(monkeypatch):
    split = drawn_split(300)
    with pytest.raises(ValueError, match=r"at least 2 classes, got only class 3 in 300 samples.*shuffle"):
        MatrixScaling().fit(split[0], torch.full((300,), 3))
    with pytest.warns(UserWarning, match="20 classes and 300 samples for 400 weights: predictions may become worse"):
        MatrixScaling().fit(*drawn_split(300, 20))
    monkeypatch.setattr(matrix, "MAX_ITERATIONS", 2)
    with pytest.warns(UserWarning, match="matrix scaling: the fit did not converge in 2 iterations") as caught:
        MatrixScaling().fit(*split)
    assert caught[0].filename == __file__
