"""torch.func: vmap is a loop, and gradients per row are gradients."""

import pytest
import torch
from torch.func import grad, vmap

from tests.functional.cases import SCORES, random_logits
from torch_boc.functional import bag_of_coins, binomial_log_tail, compute_scores, dominance_bounds, log_p_value

FUNCTIONS = {
    "coins": lambda z: tuple(bag_of_coins(z)[:5]),
    "gap": lambda z: bag_of_coins(z).gap,
    "another axis": lambda z: tuple(bag_of_coins(z, dim=0)[:5]),
    "bounds": lambda z: dominance_bounds(bag_of_coins(z).odds, 5),
    "log_p_value": lambda z: log_p_value(bag_of_coins(z), 20),
    "scores": lambda z: tuple(compute_scores(z, trials=20).values()),
}
functions = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())


def assert_equal(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-14)


def loop(function, z, axis=0):
    results = [function(part) for part in z.unbind(axis)]
    if isinstance(results[0], torch.Tensor):
        return torch.stack(results)
    return tuple(torch.stack(parts) for parts in zip(*results, strict=True))


@functions
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_vmap_is_a_loop(function, axis):
    z = random_logits(5, 5, 5)
    assert_equal(vmap(function, in_dims=axis)(z), loop(function, z, axis))


@functions
def test_vmap_of_vmap(function):
    z = random_logits(2, 3, 5)
    assert_equal(vmap(vmap(function))(z), loop(lambda part: loop(function, part), z))


def test_vmap_with_many_classes():
    z = random_logits(3, 2051)
    assert_equal(vmap(bag_of_coins)(z)[:5], bag_of_coins(z)[:5])


def test_vmap_over_wins_or_odds_alone():
    wins, odds = torch.tensor([3.0, 7.0, 9.0]), torch.tensor([0.2, 1.0, 4.0], dtype=torch.float64)
    expected = binomial_log_tail(wins[:, None], 10, odds)
    assert_equal(vmap(lambda w: binomial_log_tail(w, 10, odds))(wins), expected)
    assert_equal(vmap(lambda r: binomial_log_tail(wins, 10, r))(odds), expected.T)


SUMS = {
    "gap": lambda z: bag_of_coins(z).gap.sum(),
    "concentration": lambda z: bag_of_coins(z).concentration.sum(),
    "log_p_value": lambda z: log_p_value(bag_of_coins(z), 20).sum(),
    **{name: lambda z, n=name: compute_scores(z, [n], trials=20)[n].sum() for name in SCORES},
}
sums = pytest.mark.parametrize("function", SUMS.values(), ids=SUMS.keys())


@sums
@pytest.mark.parametrize("shape", [(4, 5), (3, 4, 5)])
def test_gradients_per_sample(function, shape):
    z = random_logits(*shape).requires_grad_()
    (expected,) = torch.autograd.grad(function(z), z)
    assert_equal(vmap(grad(function))(z.detach()), expected)


def test_grad_of_vmap():
    z = random_logits(4, 5)
    per_row = grad(lambda x: vmap(lambda row: bag_of_coins(row).gap)(x).sum())
    assert_equal(per_row(z), grad(lambda x: bag_of_coins(x).gap.sum())(z))


def test_jacobian():
    z = random_logits(5)
    jacobian = torch.func.jacrev(lambda x: torch.stack(bag_of_coins(x)[1:5]))(z)
    expected = torch.stack([grad(lambda x, i=i: bag_of_coins(x)[i])(z) for i in (1, 2, 3, 4)])
    assert_equal(jacobian, expected)


def test_hessian():
    z = random_logits(4)
    hessian = torch.func.jacrev(torch.func.jacrev(lambda x: bag_of_coins(x).gap))(z)
    expected = torch.autograd.functional.hessian(lambda x: bag_of_coins(x).gap, z)
    assert_equal(hessian, expected)
    assert_equal(hessian, hessian.T)
