"""Which dtype carries which part of the work, and who watches it."""

import torch
from torch import Tensor


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over classes are taken: float64 stays, everything narrower is float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def widen(x: Tensor) -> Tensor:
    """`x` in float64, in which per-row work is done; in float32 on MPS, which has no float64."""
    return x.to(torch.float32 if x.device.type == "mps" else torch.float64)


def is_plain(x: Tensor) -> bool:
    """Whether nobody but the caller looks at what is computed from `x`: neither autograd, nor vmap, nor a compiler.

    Then the rules of an autograd.Function are not needed, and calling its body alone saves a tenth of a millisecond.
    """
    if torch.compiler.is_compiling() or (x.requires_grad and torch.is_grad_enabled()):
        return False
    return not torch._C._are_functorch_transforms_active() and torch.autograd.forward_ad._current_level < 0
