"""Which dtype carries which part of the work."""

import torch
from torch import Tensor


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over classes are taken: float64 stays, everything narrower is float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def widen(x: Tensor) -> Tensor:
    """`x` in float64, in which per-row work is done; in float32 on MPS, which has no float64."""
    return x.to(torch.float32 if x.device.type == "mps" else torch.float64)
