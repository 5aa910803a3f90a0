"""Vector scaling: against scikit-learn, with classes missing, masked or only two, and beyond its limits."""

import math

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from tests.calibration.cases import drawn_split, mean_nll
from torch_boc import zoo
from torch_boc.calibration import VectorScaling, softmax, vector
from torch_boc.evaluation.ece import calibration_error


def scikit_learn_probabilities(logits, target, others):
    direct = LogisticRegression(max_iter=10_000, tol=1e-8)
    return torch.from_numpy(direct.fit(logits.numpy(), target.numpy()).predict_proba(others.numpy()))


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_equals_scikit_learn_on_the_logits_as_they_are(classes):
    logits, target = drawn_split(800, classes, temperature=2.0)
    others, _ = drawn_split(300, classes, temperature=2.0, seed=1)
    result = VectorScaling().fit(logits, target).calibrate(others)
    assert result.logits.shape == (300, classes)
    expected = scikit_learn_probabilities(logits, target, others)
    torch.testing.assert_close(result.logits.softmax(1), expected, rtol=3e-3, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 12])
def test_float32_products_find_the_same(classes, monkeypatch):
    logits, target = drawn_split(1500, classes, temperature=2.0)
    expected = scikit_learn_probabilities(logits, target, logits)
    monkeypatch.setattr(softmax, "MANY", 1)
    result = VectorScaling().fit(logits, target).calibrate(logits)
    torch.testing.assert_close(result.logits.softmax(1), expected, rtol=0, atol=3e-3)


def test_the_search_is_that_of_scikit_learn():
    logits, target = drawn_split(800, 7, temperature=2.0)
    theirs = LogisticRegression(C=0.5, tol=1e-5, max_iter=2000).fit(logits.numpy(), target.numpy())
    ours = softmax.fit_softmax(logits, target, strength=0.5, tolerance=1e-5, max_iterations=2000)
    assert ours.converged
    assert ours.steps == theirs.n_iter_[0]
    torch.testing.assert_close(ours.weight, torch.from_numpy(theirs.coef_), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(ours.bias, torch.from_numpy(theirs.intercept_), rtol=1e-6, atol=1e-9)


def test_a_finer_search_changes_nothing(monkeypatch):
    entry = zoo.load("vit-cifar10")
    split, target = entry.calibration["validation"], entry.id.target
    errors = []
    for tolerance in (vector.TOLERANCE, 1e-8):
        monkeypatch.setattr(vector, "TOLERANCE", tolerance)
        result = VectorScaling().fit(split.logits, split.target).calibrate(entry.id.logits)
        errors.append(calibration_error(result.confidence, result.prediction == target))
    assert errors[0] == pytest.approx(errors[1], abs=5e-5)


def test_at_the_end_nothing_slopes():
    """By autograd, from the formula in the docstring."""
    logits, target = drawn_split(400, 4)
    found = softmax.fit_softmax(logits, target, strength=2.0, tolerance=1e-7, max_iterations=2000)
    weight, bias = found.weight.clone().requires_grad_(), found.bias.clone().requires_grad_()
    likelihood = torch.nn.functional.cross_entropy(logits @ weight.T + bias, target)
    (likelihood + weight.square().sum() / (2 * 2.0 * 400)).backward()
    assert max(weight.grad.abs().max(), bias.grad.abs().max()) <= 1.01e-7


def test_a_long_fit_tells_how_far_it_is(monkeypatch):
    said = []
    monkeypatch.setattr(softmax, "SECONDS_BETWEEN_WORDS", 0.0)
    VectorScaling(progress=said.append).fit(*drawn_split(300))
    assert said[0].startswith("step 1 of at most 2,000, slope ")
    assert float(said[-1].rpartition(" ")[2]) < float(said[0].rpartition(" ")[2])
    monkeypatch.setattr(softmax, "SECONDS_BETWEEN_WORDS", 1e9)
    before = len(said)
    VectorScaling(progress=said.append).fit(*drawn_split(300))
    assert len(said) == before


def test_logits_far_from_zero_in_float32():
    logits, target = drawn_split(500)
    scaling = VectorScaling().fit(logits, target)
    expected = scaling.calibrate(logits).confidence
    far = VectorScaling().fit((logits + 1000).float(), target).calibrate((logits + 1000).float())
    torch.testing.assert_close(far.confidence, expected, rtol=1e-3, atol=0)
    near = scaling.calibrate(logits.float())
    torch.testing.assert_close(near.confidence, expected, rtol=1e-5, atol=0)
    assert near.logits.dtype == torch.float64


@pytest.mark.parametrize("strength", [0, 0.0, -1.0, -math.inf, math.nan])
def test_a_strength_that_is_none(strength):
    with pytest.raises(ValueError, match=rf"expected strength above 0, got {strength}"):
        VectorScaling(strength=strength)


def test_the_strength_weighs_the_samples_against_the_penalty():
    logits, target = drawn_split(400)
    size = [VectorScaling(strength=x).fit(logits, target)._weight.square().sum() for x in (1e-6, 1e-2, 1.0, 100.0)]
    assert size[0] < 0.01 * size[1] < size[1] < size[2] < size[3]


def test_cures_a_bias_that_no_temperature_cures():
    logits, target = drawn_split(3000)
    bias = torch.tensor([3.0, 0.0, 0.0, -2.0, 0.0])
    others, truth = drawn_split(3000, seed=1)
    calibrated = VectorScaling().fit(logits + bias, target).calibrate(others + bias).logits
    assert mean_nll(calibrated, truth) == pytest.approx(mean_nll(others, truth), rel=0.03)
    assert mean_nll(others + bias, truth) > 1.3 * mean_nll(others, truth)


def test_the_shift_of_a_column_is_no_matter():
    logits, target = drawn_split(500)
    expected = VectorScaling().fit(logits, target).calibrate(logits).confidence
    changed = logits + torch.arange(5.0, dtype=torch.float64)
    result = VectorScaling().fit(changed, target).calibrate(changed)
    torch.testing.assert_close(result.confidence, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_the_scale_is_no_matter_if_the_penalty_follows(factor):
    logits, target = drawn_split(500)
    expected = VectorScaling().fit(logits, target).calibrate(logits).confidence
    result = VectorScaling(strength=factor**-2).fit(factor * logits, target).calibrate(factor * logits)
    torch.testing.assert_close(result.confidence, expected, rtol=1e-5, atol=0)


def test_a_missing_class_has_the_chance_of_laplace():
    logits, target = drawn_split(400, 4)
    present = target != 1
    seen, labels = logits[present], target[present]
    result = VectorScaling().fit(seen, labels).calibrate(logits)
    chance = result.logits.softmax(1)
    torch.testing.assert_close(chance[:, 1], torch.full((400,), 1 / (len(seen) + 2), dtype=torch.float64))
    rest = chance[:, [0, 2, 3]] / chance[:, [0, 2, 3]].sum(1, keepdim=True)
    torch.testing.assert_close(rest, scikit_learn_probabilities(seen, labels, logits), rtol=3e-3, atol=1e-5)
    assert not bool((result.prediction == 1).any())


def test_two_samples_of_two_classes_among_many():
    logits, _ = drawn_split(2, 6)
    result = VectorScaling().fit(logits, torch.tensor([5, 2])).calibrate(logits)
    assert result.prediction.tolist() == [5, 2]
    assert bool(result.logits.isfinite().all())
    chance = result.logits.softmax(1)
    torch.testing.assert_close(chance[:, [0, 1, 3, 4]], torch.full((2, 4), 1 / (3 + 4), dtype=torch.float64))


def test_a_single_class_is_an_error():
    with pytest.raises(ValueError, match=r"at least 2 classes, got only class 3 in 50 samples.*shuffle"):
        VectorScaling().fit(drawn_split(50)[0], torch.full((50,), 3))


def test_a_logit_of_minus_infinity_counts_as_the_lowest():
    logits, target = drawn_split(300)
    hidden = torch.rand(logits.shape, generator=torch.Generator().manual_seed(2)) < 0.1
    masked, lowest = logits.masked_fill(hidden, -torch.inf), logits[~hidden].min().item()
    expected = VectorScaling().fit(logits.masked_fill(hidden, lowest), target)
    result = VectorScaling().fit(masked, target)
    torch.testing.assert_close(result.calibrate(masked).logits, expected.calibrate(masked.clamp_min(lowest)).logits)


def test_a_constant_column_carries_no_weight():
    logits, target = drawn_split(300)
    constant = torch.cat([logits, torch.full((300, 1), 0.1)], 1)  # 0.1 is not the mean of 300 times 0.1
    expected = VectorScaling().fit(logits, target).calibrate(logits).logits.softmax(1)
    chance = VectorScaling().fit(constant, target).calibrate(constant).logits.softmax(1)
    torch.testing.assert_close(chance[:, :5] * (302 / 301), expected, rtol=3e-3, atol=1e-5)


def test_separable_data_are_held_back_by_the_penalty():
    logits, _ = drawn_split(300)
    result = VectorScaling().fit(logits, logits.argmax(1)).calibrate(logits)
    assert bool(result.logits.isfinite().all())
    assert (result.prediction == logits.argmax(1)).double().mean() > 0.95


def test_no_convergence_is_said_in_our_words(monkeypatch):
    monkeypatch.setattr(vector, "MAX_ITERATIONS", 2)
    with pytest.warns(UserWarning, match="vector scaling: the fit did not converge in 2 iterations") as caught:
        VectorScaling().fit(*drawn_split(300))
    assert len(caught) == 1
    assert (caught[0].category, caught[0].filename) == (UserWarning, __file__)


def test_large_splits_are_drawn_from_the_same_way_each_time():
    """Classes in turn, which every k-th sample would miss."""
    target = torch.arange(4000) % 4
    noise = torch.randn(4000, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits = 2.0 * torch.nn.functional.one_hot(target, 4) + noise
    some, again, all_of_them = (VectorScaling(max_samples=n).fit(logits, target) for n in (1000, 1000, 4000))
    calibrated = some.calibrate(logits).logits
    assert torch.equal(calibrated, again.calibrate(logits).logits)
    best = all_of_them.calibrate(logits).logits
    assert not torch.equal(calibrated, best)
    assert mean_nll(calibrated, target) == pytest.approx(mean_nll(best, target), rel=0.02)
    with pytest.raises(ValueError, match="max_samples"):
        VectorScaling(max_samples=1)


def test_a_fit_that_takes_minutes_says_so_before(monkeypatch):
    logits, target = 2 * torch.eye(3).repeat(20, 1), torch.arange(60) % 3
    monkeypatch.setattr("torch_boc.calibration.vector.SLOW", 60 * 9 - 1)
    with pytest.warns(UserWarning, match="vector scaling: 3 classes and 60 samples may take many minutes") as caught:
        VectorScaling().fit(logits, target)
    assert caught[0].filename == __file__
