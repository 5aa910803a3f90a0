"""The approximate instructions of NVIDIA's GPUs are within our bounds: the same steps in NumPy, with the worst errors.

The errors are those that NVIDIA documents: two units in the last place for ex2.approx, one for rcp.approx.
"""

import sys

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")
F32, F64 = np.float32, np.float64
BELOW = np.concatenate([np.linspace(-155.9, 0, 1_000_003), -np.logspace(-30, 2, 100_003)]).astype(F32)


def fused(x, y, z):
    """Product and sum with one rounding: the product is exact in float64."""
    return (x.astype(F64) * F64(y) + z).astype(F32)


def off_by(values, units):
    """Rounded to float32, and then so many units in the last place away."""
    near = values.astype(F32)
    return (near + F32(units) * np.spacing(near)).astype(F32)


def odds(below, units):
    """`odds_and_losses` in the fast form: 2^100 u."""
    constants = pytest.importorskip("torch_boc.kernels.triton.exponentials")
    high, low, shift = (F32(x.value) for x in (constants.LOG2_E, constants.LOG2_E_REST, constants.ROUND))
    shifted = fused(below, high, F64(shift))
    n = shifted - shift
    fraction = fused(below, low, fused(below, high, -n.astype(F64)).astype(F64))
    assert np.abs(fraction).max() <= 0.5001
    power = off_by(np.exp2(fraction.astype(F64)), units)
    return (power.view(np.int32) + (shifted.view(np.int32) << 23)).view(F32)


@pytest.mark.parametrize("units", [-2, 0, 2])
def test_odds(units):
    exact = np.exp(BELOW.astype(F64)) * 2.0**100
    error = np.abs(odds(BELOW, units) / exact - 1)
    assert error.max() <= 4e-7
    assert error.max() >= (5e-8 if units == 0 else 2e-7)  # as large as the bound says


@pytest.mark.parametrize("units", [-1, 1])
def test_losses(units):
    u = np.exp(BELOW[BELOW > -80].astype(F64)).astype(F32)
    one = off_by(1 / (F32(1) + u).astype(F64), units)
    exact = u.astype(F64) / (1 + u.astype(F64))
    assert np.abs((u * one).astype(F32) / exact - 1).max() <= 3e-7


def test_both_together_are_below_the_limit_of_the_sums():
    """The largest error of a product of loss and odds, of which the squares are a sum of positive numbers."""
    from tests.kernels.cases import LIMIT, torch

    scaled = odds(BELOW, 2)
    u = scaled * F32(2.0**-100)
    loss = u * off_by(1 / (F32(1) + u).astype(F64), 1)
    exact = np.exp(2 * BELOW.astype(F64)) / (1 + np.exp(BELOW.astype(F64))) * 2.0**100
    usual = BELOW > -75  # below, products are denormal
    assert np.abs((loss * scaled)[usual] / exact[usual] - 1).max() <= 1e-6 < LIMIT[torch.float32]
