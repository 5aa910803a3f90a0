"""Dice against 50-digit arithmetic and against what they must be; `everything` of `cases` has their other laws."""

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatch import MemoryMeter
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


def test_extra_memory_is_bounded():
    logits = torch.randn(2_000, 1_000, requires_grad=True)
    with MemoryMeter() as meter:
        bag_of_dice(logits, 3).sum().backward()
    assert meter.peak < 20 * logits.nbytes
