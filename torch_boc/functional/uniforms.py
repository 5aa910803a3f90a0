"""Uniform numbers that a seed and an index decide, on every device."""

from torch import Tensor

from ..core.precision import widen


def seeded_uniforms(seed: int, index: Tensor) -> Tensor:
    """A number in (0, 1) for each index, in float64 (float32 on MPS): the same for the same seed, on every device.

    The numbers are those of SplitMix64 (Steele, Lea, Flood, 2014). They depend on the index alone, so that a stream in
    batches gets the same numbers as one sample at a time.

    >>> seeded_uniforms(0, torch.arange(3))
    tensor([0.8833, 0.4315, 0.0264], dtype=torch.float64)
    """
    state = (index + 1) * -0x61C8864680B583EB + _signed(seed * 0x9E3779B97F4A7C15 ^ seed)
    state = (state ^ _shifted(state, 30)) * -0x40A7B892E31B1A47
    state = (state ^ _shifted(state, 27)) * -0x6B2FB644ECCEEE15
    state = state ^ _shifted(state, 31)
    # 23 bits and a half: every number is exact in float32 too, and neither 0 nor 1 occurs.
    return (widen(_shifted(state, 41)) + 0.5) * 2.0**-23


def _shifted(x: Tensor, bits: int) -> Tensor:
    """`x` read as an unsigned number, shifted to the right."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(number: int) -> int:
    """The signed number with the same 64 bits."""
    return ((number + 2**63) % 2**64) - 2**63
