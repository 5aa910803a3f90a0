"""Exact gradients: against finite differences in double precision, and finite wherever the value is."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from tests.functional.cases import FLOAT_FIELDS, SCORES, confident_logits, random_logits
from torch_boc.functional import (
    bag_of_coins,
    binomial_log_tail,
    binomial_tail,
    compute_scores,
    dominance_bounds,
    forced_gap,
    log_p_value,
    p_value,
    scores,
    structural_score,
)

f64 = torch.float64
over_fields = pytest.mark.parametrize("name", FLOAT_FIELDS)
over_classes = pytest.mark.parametrize("classes", [2, 3, 4, 7])


def leaf(x):
    return x.detach().clone().requires_grad_()


@over_fields
@over_classes
def test_gradients_of_the_coins(name, classes):
    z = leaf(random_logits(4, classes, scale=1.5, seed=classes))
    assert gradcheck(lambda x: getattr(bag_of_coins(x), name), z)


@over_fields
@over_classes
def test_second_derivatives_of_the_coins(name, classes):
    z = leaf(random_logits(3, classes, scale=1.5, seed=classes))
    assert gradgradcheck(lambda x: getattr(bag_of_coins(x), name), z)


def test_gradients_along_another_axis_and_through_strides():
    z = leaf(random_logits(3, 4, 5))
    assert gradcheck(lambda x: tuple(bag_of_coins(x[:, ::2].transpose(0, 2), dim=1)[1:5]), z)


@pytest.mark.parametrize("name", SCORES)
@over_classes
def test_gradients_of_the_scores(name, classes):
    z = leaf(random_logits(4, classes, scale=1.5, seed=classes))
    assert gradcheck(lambda x: scores[name](x, trials=20), z)


@pytest.mark.parametrize("function", [p_value, log_p_value, structural_score])
@pytest.mark.parametrize("trials", [1, 20, 100])
def test_gradients_of_the_p_values(function, trials):
    z = leaf(random_logits(4, 5, scale=1.5))
    assert gradcheck(lambda x: function(bag_of_coins(x), trials), z)


@pytest.mark.parametrize("classes", [2, 4, 10])
def test_gradients_of_the_bounds(classes):
    odds = leaf(torch.tensor([0.01, 0.4, 0.7], dtype=f64) * (classes - 1))
    assert gradcheck(lambda x: (*dominance_bounds(x, classes), forced_gap(x, classes)), odds)


@pytest.mark.parametrize("trials", [1, 2, 20, 1000])
def test_gradients_of_the_tails(trials):
    wins = torch.tensor([0, 1, (trials + 1) // 2, trials, trials])[:, None]
    odds = leaf(torch.tensor([0.2, 0.9, 1.1, 5.0], dtype=f64))
    chance = leaf(torch.tensor([0.1, 0.45, 0.55, 0.9], dtype=f64))
    assert gradcheck(lambda x: binomial_log_tail(wins, trials, x), odds)
    assert gradcheck(lambda x: binomial_tail(wins, trials, x), chance)


@over_fields
@pytest.mark.parametrize("odds", [1e-3, 1e-12, 1e-25])
def test_confident_float32_rows_have_the_gradient_of_float64(name, odds):
    z = confident_logits(10, odds).float()
    grads = []
    for logits in (leaf(z), leaf(z.double())):
        getattr(bag_of_coins(logits), name).backward()
        grads.append(logits.grad.double())
    scale = grads[1].abs().max().clamp_min(1e-35)  # the free gap is of the order of the odds squared, 1e-50
    torch.testing.assert_close(grads[0] / scale, grads[1] / scale, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("dtype", [torch.float32, f64, torch.bfloat16])
@pytest.mark.parametrize(
    "row",
    [[0.0] * 4, [5.0, 5.0, 5.0, 4.0], [1.0, 1.0, -torch.inf, 0.0], [300.0, 0.0, 1.0, 2.0], [900.0, 0.0, 0.0, 1.0]],
    ids=["flat", "nearly flat", "minus infinity", "odds underflow in float32", "odds underflow in float64"],
)
def test_gradients_of_scores_are_finite_for_every_row_that_has_a_geometry(name, dtype, row):
    z = torch.tensor([row], dtype=dtype, requires_grad=True)
    compute_scores(z)[name].sum().backward()
    assert z.grad.isfinite().all()


@over_fields
def test_a_shift_has_no_gradient(name):
    """The outputs do not change when all logits do, so each row of the gradient sums to 0."""
    z = leaf(random_logits(5, 6))
    getattr(bag_of_coins(z), name).sum().backward()
    torch.testing.assert_close(z.grad.sum(-1), torch.zeros(5, dtype=f64), rtol=0, atol=1e-14)


def test_nothing_is_recorded_without_need():
    assert not any(x.requires_grad for x in bag_of_coins(random_logits(3, 4))[:5])
    coins = bag_of_coins(leaf(random_logits(3, 4)))
    assert [x.requires_grad for x in coins[:5]] == [False, True, True, True, True]
