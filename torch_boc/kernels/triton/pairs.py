"""Numbers as the sum of two float32, which have 48 bits together, for cards whose float64 is slow.

Every rounding error is computed exactly and goes to the second number (Dekker, 1971). The compiler must not fuse or
reorder anything here. This module needs Triton, and is imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl


@triton.jit
def _fused(a, b, c):
    """The first times the second plus the third, with one rounding."""
    return tl.fma(a, b, c)


@triton.jit
def pair_of(x):
    """A float64 as a pair."""
    high = x.to(tl.float32)
    return high, (x - high.to(tl.float64)).to(tl.float32)


@triton.jit
def wide(high, low):
    """A pair as a float64."""
    return high.to(tl.float64) + low.to(tl.float64)


@triton.jit
def _settle(high, low):
    """The same pair with all leading bits in its first number, which must not be smaller than the second."""
    total = high + low
    return total, low - (total - high)


@triton.jit
def product_of(a, b):
    """The exact product of two float32."""
    high = a * b
    return high, _fused(a, b, -high)


@triton.jit
def times_number(high, low, number):
    """A pair times a float32."""
    first, rest = product_of(high, number)
    return _settle(first, _fused(low, number, rest))


@triton.jit
def times(high, low, other_high, other_low):
    """The product of two pairs."""
    first, rest = product_of(high, other_high)
    return _settle(first, _fused(low, other_high, _fused(high, other_low, rest)))


@triton.jit
def plus(high, low, other_high, other_low):
    """The sum of two pairs."""
    total = high + other_high
    back = total - high
    lost = (high - (total - back)) + (other_high - back)
    return _settle(total, lost + (low + other_low))
