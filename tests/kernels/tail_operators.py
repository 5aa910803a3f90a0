"""The fused p-value, the gradients of the tails, and what torch asks of an operator. Run by `test_kernels.py`."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import vmap

from tests.kernels.cases import DEVICE
from torch_boc.functional import Coins, binomial_log_tail, expected_wins
from torch_boc.kernels import use
from torch_boc.kernels.tails import log_p_value, log_tail

f64 = torch.float64
OPERATORS = {"log_tail": log_tail, "log_p_value": log_p_value}
over_operators = pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS.keys())


def make(operator, shape, dtype=f64, *, seed=0):
    """Wins or losses, and odds."""
    first, odds = torch.rand(2, *shape, dtype=f64, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
    first = (first * 12 - 1).round() if operator is log_tail else first.to(dtype) / 2
    return first, (3 * odds).to(dtype)


def in_torch(operator, first, trials, odds):
    """By torch's operations: by "auto" the kernels would be compared with themselves."""
    with use("torch"):
        if operator is log_p_value:
            first = expected_wins(Coins(first, odds, first, odds, odds), trials)
        return binomial_log_tail(first, trials, odds)


def losses_that_round(trials, dtype):
    """Dominances half-way between two counts, just above, just below, and between; none, all and an unknown one."""
    halves = (torch.arange(min(trials, 16), dtype=f64) + 0.5) / trials
    whole = torch.linspace(0, 1, 20, dtype=f64)
    loss = torch.cat([halves, halves * (1 + 4e-16), halves * (1 - 4e-16), whole, torch.tensor([torch.nan])])
    return loss.to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, f64, torch.bfloat16])
@pytest.mark.parametrize("trials", [1, 3, 100, 1001, 1_000_000])
def test_the_expected_wins_are_those_of_torch(trials, dtype):
    """One win more or less would show: the tails are those of the wins that torch rounds to."""
    loss = losses_that_round(trials, dtype)
    odds = (loss.double() * 2).to(dtype)
    wins = expected_wins(Coins(loss, odds, loss, odds, odds), trials)
    for value, expected in zip(log_p_value(loss, trials, odds), log_tail(wins, trials, odds.double()), strict=True):
        assert value.dtype == f64
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=0, equal_nan=True)


@over_operators
@pytest.mark.parametrize("dtype", [torch.float32, f64])
def test_the_gradient_is_that_of_torch(operator, dtype):
    first, odds = make(operator, (40,), dtype)
    grads = []
    for function in (lambda *x: operator(*x)[0], lambda *x: in_torch(operator, *x)):
        leaf = odds.clone().requires_grad_()
        value = function(first.clone().requires_grad_(operator is log_p_value), 10, leaf)
        (value * torch.arange(40, device=DEVICE)).nan_to_num(neginf=0.0).sum().backward()
        grads.append(leaf.grad)
    assert grads[0].dtype == dtype
    torch.testing.assert_close(*grads, rtol=1e-6 if dtype == torch.float32 else 1e-11, atol=1e-300)


@over_operators
def test_gradcheck(operator):
    first, odds = make(operator, (12,))
    first = first.clamp(0, 10) if operator is log_tail else first
    assert torch.autograd.gradcheck(lambda x: operator(first, 10, x)[0], (odds + 0.1).requires_grad_())


@over_operators
def test_the_slope_and_the_rounding_have_no_gradient(operator):
    first, odds = make(operator, (5,))
    first.requires_grad_(), odds.requires_grad_()
    value, slope = operator(first, 10, odds)
    assert not slope.requires_grad
    value.sum().backward()
    assert first.grad is None


@over_operators
def test_a_second_derivative_is_an_error_as_in_torch(operator):
    first, odds = make(operator, (5,))
    errors = []
    for function in (lambda *x: operator(*x)[0], lambda *x: in_torch(operator, *x)):
        leaf = odds.clone().requires_grad_()
        (grad,) = torch.autograd.grad(function(first, 10, leaf).exp().sum(), leaf, create_graph=True)
        with pytest.raises(RuntimeError) as caught:
            grad.sum().backward()
        errors.append(str(caught.value))
    assert "differentiate twice" in errors[0]
    assert errors[0] == errors[1]


@over_operators
@pytest.mark.parametrize("in_dims", [(0, 0), (1, 0), (None, 1), (0, None)])
def test_vmap_is_a_loop(operator, in_dims):
    first, odds = make(operator, (4, 4, 3))
    first, odds = (x[0] if dim is None else x for x, dim in zip((first, odds), in_dims, strict=True))
    mapped = vmap(lambda w, r: operator(w, 10, r), in_dims=in_dims)(first, odds)
    slices = [[x] * 4 if dim is None else x.unbind(dim) for x, dim in zip((first, odds), in_dims, strict=True)]
    loop = [operator(w, 10, r) for w, r in zip(*slices, strict=True)]
    for value, expected in zip(mapped, zip(*loop, strict=True), strict=True):
        torch.testing.assert_close(value, torch.stack(expected), rtol=0, atol=0)


@over_operators
def test_vmap_over_gradients(operator):
    """The Jacobian in one sweep, a diagonal."""
    first, odds = make(operator, (5,))
    value, slope = operator(first, 10, odds.requires_grad_())
    (batched,) = torch.autograd.grad(value, odds, torch.eye(5, dtype=f64, device=DEVICE), is_grads_batched=True)
    torch.testing.assert_close(batched, slope.diag(), rtol=0, atol=0)


@over_operators
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck looks at it itself
@pytest.mark.parametrize("dtype", [torch.float32, f64])
@pytest.mark.parametrize("shape", [(0,), (2, 3)])
def test_opcheck(operator, shape, dtype):
    first, odds = make(operator, shape, dtype)
    torch.library.opcheck(operator, (first, 10, odds))
    torch.library.opcheck(operator, (first, 10, odds.clone().requires_grad_()))


@over_operators
def test_fake_tensors_of_a_gpu(operator):
    with FakeTensorMode():
        odds = torch.empty(3, 4, device="cuda").T
        for value in operator(odds, 10, odds):
            assert (value.shape, value.dtype, value.device.type) == ((4, 3), f64, "cuda")
            assert value.is_contiguous()


@over_operators
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_is_eager(operator, dynamic):
    def probe(first, odds):
        return operator(first, 10, odds * 2)[0] * 3

    results = []
    for function in (probe, torch.compile(probe, backend="aot_eager", fullgraph=True, dynamic=dynamic)):
        first, odds = make(operator, (7,), torch.float32)
        value = function(first.clamp(max=10), odds.requires_grad_())
        value.sum().backward()
        results.append((value, odds.grad))
    for value, expected in zip(*results, strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=0)
