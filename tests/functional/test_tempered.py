"""Coins at another temperature, and the rule that chooses one: laws, limits, and what is refused."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatch import MemoryMeter
from tests.functional.cases import logits, on_grid, random_logits
from tests.kernels.cases import needs_native
from torch_boc import kernels
from torch_boc.functional import bag_of_coins, choose_temperature, scores, tempered_dominance

PATHS = ("torch", pytest.param("native", marks=needs_native))


def direct(z, temperature):
    top, place = z.max(-1, keepdim=True)
    won = torch.sigmoid((top - z) / temperature).scatter(-1, place, 0.0)
    return won.sum(-1) / (z.shape[-1] - 1)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0, 50.0])
def test_it_is_its_formula(temperature, path):
    z = random_logits(5, 3, 40)
    with kernels.use(path):
        found = tempered_dominance(z, temperature)
        moved = tempered_dominance(z.movedim(-1, 0), temperature, dim=0)
    torch.testing.assert_close(found, direct(z, temperature), rtol=1e-12, atol=0)
    torch.testing.assert_close(moved, found, rtol=1e-12, atol=0)


@given(logits(elements=on_grid))
def test_at_temperature_1_it_is_the_dominance(z):
    torch.testing.assert_close(tempered_dominance(z, 1.0), bag_of_coins(z).dominance, rtol=1e-14, atol=0)


@given(logits(elements=on_grid), st.floats(0.1, 50))
def test_it_falls_with_the_temperature_to_one_half(z, temperature):
    cool, warm, hot = (tempered_dominance(z, t) for t in (temperature, 2 * temperature, 1e9))
    assert (cool >= warm - 1e-12).all()
    assert (warm >= 0.5 - 1e-12).all()
    torch.testing.assert_close(hot, torch.full_like(hot, 0.5), rtol=0, atol=1e-6)


def test_at_a_high_temperature_it_ranks_as_the_logit_gap():
    """And 4 T (q_T - 1/2) is the logit gap itself."""
    z = random_logits(300, 10)
    found, gap = tempered_dominance(z, 1e5), scores["logit_gap"](z)
    assert found.argsort().tolist() == gap.argsort().tolist()
    torch.testing.assert_close(4e5 * (found - 0.5), gap, rtol=1e-6, atol=1e-6)


def test_the_score_has_a_temperature_of_4():
    z = random_logits(20, 10)
    torch.testing.assert_close(tempered_dominance(z, 4.0), scores["tempered_dominance"](z), rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_logits_are_computed_in_float32(dtype):
    z = random_logits(20, 10, dtype=dtype)
    found = tempered_dominance(z, 3.0)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, direct(z.double(), 3.0), rtol=1e-6, atol=0)


def test_gradients():
    z = random_logits(3, 4, scale=1.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: tempered_dominance(x, 2.0), z)
    assert torch.autograd.gradgradcheck(lambda x: tempered_dominance(x, 2.0), z)


def test_it_maps_and_compiles():
    z = random_logits(4, 3, 7)
    expected = tempered_dominance(z, 2.0)
    torch.testing.assert_close(torch.func.vmap(lambda x: tempered_dominance(x, 2.0))(z), expected, rtol=1e-12, atol=0)
    compiled = torch.compile(lambda x: tempered_dominance(x, 2.0), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(z), expected, rtol=1e-12, atol=0)


def test_memory_is_that_of_a_piece():
    z = torch.linspace(-30, 30, 128_256).to(torch.bfloat16).expand(128, -1).contiguous().requires_grad_()
    with kernels.use("torch"), MemoryMeter() as meter:
        tempered_dominance(z, 4.0).sum().backward()
    assert meter.peak - z.grad.nbytes < 64e6
    with kernels.use("torch"), MemoryMeter() as meter:
        tempered_dominance(z.detach(), 4.0)
    assert meter.peak < 64e6


@pytest.mark.parametrize("dominance", [0.6, 0.9, 0.99])
@pytest.mark.parametrize("path", PATHS)
def test_the_median_is_what_was_asked_for(dominance, path):
    z = random_logits(501, 10, dtype=torch.float32) * 5
    with kernels.use(path):
        temperature = choose_temperature(z, dominance=dominance)
        assert float(tempered_dominance(z, temperature).median()) == pytest.approx(dominance, abs=1e-5)
    assert temperature.shape == ()
    assert temperature.dtype == torch.float64


def test_the_temperature_scales_with_the_logits_and_ignores_bad_rows():
    z = random_logits(201, 10)
    one = float(choose_temperature(z))
    assert float(choose_temperature(z * 3)) == pytest.approx(3 * one, rel=2e-6)
    assert float(choose_temperature(z.T + 7.0, dim=0)) == pytest.approx(one, rel=2e-6)
    bad = torch.full((40, 10), math.nan, dtype=z.dtype)
    assert float(choose_temperature(torch.cat([z, bad]))) == pytest.approx(one, rel=2e-6)
    assert float(choose_temperature(z.unflatten(0, (3, 67)))) == pytest.approx(one, rel=2e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda z: tempered_dominance(z, 0.0), "expected a temperature above 0, got 0.0"),
        (lambda z: tempered_dominance(z, math.inf), "expected a temperature above 0, got inf"),
        (lambda z: tempered_dominance(z, torch.ones(2)), r"expected one temperature, got a tensor of shape \(2,\)"),
        (lambda z: choose_temperature(z, dominance=0.5), "expected a dominance between 0.5 and 1, got 0.5"),
        (lambda z: choose_temperature(z[:0]), r"expected logits of at least one sample, got shape \(0, 5\)"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(random_logits(3, 5))
