"""Which dtype is used for which part of the work, and whether autograd or a compiler follows the computation."""

from collections.abc import Callable

import torch
from torch import Tensor


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over classes are taken: float64 for float64, float32 for every narrower dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def widen(x: Tensor) -> Tensor:
    """`x` in float64, in which per-row work is done; in float32 on MPS, which has no float64."""
    return x.to(torch.float32 if x.device.type == "mps" else torch.float64)


def moves_only(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """What a module's `_apply` does to a tensor, without a change of its dtype: bfloat16 cannot hold a sum.

    float64 becomes float32 on MPS, which has no float64.
    """

    def move(x: Tensor) -> Tensor:
        device = change(torch.empty(0, device=x.device)).device
        return (x.float() if device.type == "mps" and x.dtype == torch.float64 else x).to(device)

    return move


def is_plain(x: Tensor) -> bool:
    """Whether neither autograd, nor a transform such as vmap, nor a compiler follows what is computed from `x`.

    If so, the rules of an autograd.Function are not needed, and a direct call of its body saves a tenth of a
    millisecond.
    """
    if torch.compiler.is_compiling() or (x.requires_grad and torch.is_grad_enabled()):
        return False
    return not torch._C._are_functorch_transforms_active() and torch.autograd.forward_ad._current_level < 0
