"""Odds and losses of each class from its logit, and the top of a row, for all kernels.

With the constant `fast`, float32 uses instructions of NVIDIA's GPUs that have no name in Triton. All are exact to one
or two units in the last place for the arguments that they get here, as `tests/kernels/test_fast.py` shows. This module
needs Triton, and is imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

UP = tl.constexpr(2.0**100)
DOWN = tl.constexpr(2.0**-100)
# A number that is added to this is rounded to an integer. The low bits of the sum are this integer plus 100.
ROUND = tl.constexpr(1.5 * 2.0**23 + 100.0)
LOG2_E = tl.constexpr(1.44269502162933349609375)  # log2(e) in float32, and the rest
LOG2_E_REST = tl.constexpr(1.92596299112661746887e-8)


@triton.jit
def _exp2(x, fast: tl.constexpr):
    """2^x for |x| <= 1/2: what Triton has for it takes care of denormals as well, at three instructions more."""
    if fast:
        y = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        y = tl.exp2(x)
    return y


@triton.jit
def _share(odds, fast: tl.constexpr):
    """The loss u / (1 + u) for 0 <= u <= 1."""
    if fast:
        one = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [1.0 + odds], dtype=tl.float32, is_pure=True, pack=1
        )
        share = odds * one
    else:
        share = odds / (1.0 + odds)
    return share


@triton.jit
def odds_and_losses(below, fast: tl.constexpr):
    """2^100 u and u / (1 + u) of each class; and `below`, made finite.

    In float32, exp(x) = 2^n 2^f with x log2(e) = n + f: what the GPU has for exp rounds x log2(e), which can cost 3e-6
    at u = 1e-30. The whole number n goes to the exponent, where 100 more are for the scale.
    """
    if below.dtype == tl.float64:
        finite = tl.maximum(below, -1e4)
        scaled = tl.exp(finite) * UP
    else:
        finite = tl.maximum(below, -156.0)  # u = 2^-225, nearly the smallest whose scaled exponent float32 holds
        shifted = finite * LOG2_E + ROUND
        n = shifted - ROUND
        if fast:  # a fused multiply-add has all digits of the product
            high, low = tl.full(finite.shape, LOG2_E, tl.float32), tl.full(finite.shape, LOG2_E_REST, tl.float32)
            fraction = tl.fma(finite, low, tl.fma(finite, high, -n))
        else:  # Cody and Waite: the first factor is so short that its product with n is exact
            fraction = ((finite - n * 0.693359375) + n * 2.12194440e-4) * LOG2_E
        bits = _exp2(fraction, fast).to(tl.int32, bitcast=True) + (shifted.to(tl.int32, bitcast=True) << 23)
        scaled = bits.to(tl.float32, bitcast=True)
    return scaled, _share(scaled * DOWN, fast), finite


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def top_of(z, axis: tl.constexpr, fast: tl.constexpr):
    """The largest; where there is a NaN, NaN if `fast`, otherwise +inf. Both stand for an undefined row."""
    return tl.reduce(z, axis, _larger) if fast else tl.max(tl.where(z == z, z, float("inf")), axis)


@triton.jit
def key_of(z, best, column, classes):
    """The column of a top; of a NaN, which comes before all tops, the column minus `classes`; otherwise `classes`."""
    return tl.where(z != z, column - classes, tl.where(z == best, column, classes))
