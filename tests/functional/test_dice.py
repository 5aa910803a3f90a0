"""Dice against 50-digit arithmetic and against what they must be."""

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatch import MemoryMeter, NoHostSync
from tests.functional.cases import random_logits
from torch_boc.functional import bag_of_coins, bag_of_dice


def exact(values, faces):
    """1 - E 1 / (1 + u_1 + ... + u_m) as an integral, for rivals given as {u: how many}."""
    rivals = sum(values.values())

    def integrand(x):
        time = mpmath.exp(x)
        mean = mpmath.fsum(number * mpmath.exp(-time * mpmath.mpf(u)) for u, number in values.items()) / rivals
        return time * mpmath.exp(-time) * (1 - mean**faces)

    with mpmath.workdps(50):
        return mpmath.quad(integrand, [-70, -40, -30, -20, -15, -10, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5])


MANY = ({1.0: 500, 1e-6: 499}, {1.0: 3, 1e-3: 50_253}, {1.0: 50_256}, {1e-30: 50_256})


@pytest.mark.parametrize("values", [{1.0: 1, 0.5: 1}, {1e-12: 1, 1e-20: 1}, {0.9: 3, 0.01: 6}, *MANY])
def test_fifty_digits(values):
    rivals = torch.tensor([u for u, number in values.items() for _ in range(number)], dtype=torch.float64)
    logits, most = torch.cat([torch.zeros(1, dtype=torch.float64), rivals.log()]), len(rivals)
    faces = sorted({1, 2, min(10, most), (most + 1) // 2, most})
    found = bag_of_dice(logits, faces)
    for count, loss in zip(faces, found.tolist(), strict=True):
        assert abs(loss / exact(values, count) - 1) < 1e-10


@given(st.integers(0, 10**6), st.integers(2, 40), st.floats(0.01, 30))
def test_one_face_is_a_coin_and_even_rivals_lose_most(seed, classes, scale):
    logits = scale * random_logits(4, classes, seed=seed)
    found, coins = bag_of_dice(logits, [1, 2, 3, 50]), bag_of_coins(logits)
    torch.testing.assert_close(found[:, 0], coins.loss, rtol=1e-10, atol=0)
    mass = torch.tensor([1, 2, 3, 50]) * coins.odds.unsqueeze(-1)
    assert (found.diff() >= 0).all()
    assert (found <= mass / (classes - 1 + mass) * (1 + 1e-10)).all()


def test_axes_blocks_and_bad_rows(monkeypatch):
    logits = random_logits(3, 7, 4)
    logits[0, 0, 1], logits[1, 2, 0], logits[2, 3, 2] = torch.nan, torch.inf, -torch.inf
    whole = bag_of_dice(logits, [1, 4])
    assert whole.shape == (3, 7, 2)
    assert whole.isnan().sum() == whole[0, 0].isnan().sum() + whole[1, 2].isnan().sum() == 4
    torch.testing.assert_close(bag_of_dice(logits.movedim(-1, 0), 4, dim=0), whole[..., 1], equal_nan=True)
    monkeypatch.setattr("torch_boc.core.chunking.CPU_ELEMENTS_PER_THREAD", 300)
    torch.testing.assert_close(bag_of_dice(logits, [1, 4]), whole, rtol=1e-14, atol=0, equal_nan=True)


def test_gradients_mapping_compilation_and_no_waiting():
    logits = random_logits(3, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: bag_of_dice(z, [1, 6]), logits)
    bare = logits.detach()
    mapped = torch.func.vmap(lambda z: bag_of_dice(z, 6))(bare)
    compiled = torch.compile(lambda z: bag_of_dice(z, 6), fullgraph=True, backend="aot_eager")(bare)
    with NoHostSync():
        eager = bag_of_dice(bare, 6)
    for other in (mapped, compiled):
        torch.testing.assert_close(other, eager, rtol=1e-13, atol=0)


def test_extra_memory_is_bounded():
    logits = torch.randn(2_000, 1_000, requires_grad=True)
    with MemoryMeter() as meter:
        bag_of_dice(logits, 3).sum().backward()
    assert meter.peak < 20 * logits.nbytes
