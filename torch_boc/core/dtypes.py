"""Which dtype is used for which part of the work, and whether autograd or a compiler follows the computation."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over classes are taken: float64 for float64, float32 for every narrower dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def wide_dtype(device: torch.device) -> torch.dtype:
    """The dtype of per-row work: float64; float32 on devices without it, which are MPS and some GPUs of Intel."""
    return torch.float64 if _has_float64(device) else torch.float32


def _has_float64(device: torch.device) -> bool:
    return device.type != "mps" and (device.type != "xpu" or _xpu_has_float64(device))


@lru_cache
def _xpu_has_float64(device: torch.device) -> bool:
    return not torch.xpu.is_available() or bool(torch.xpu.get_device_properties(device).has_fp64)


_xpu_has_float64._dynamo_marked_constant = True  # type: ignore[attr-defined]


def to_wide(x: Tensor) -> Tensor:
    """`x` in the `wide_dtype` of its device."""
    return x.to(wide_dtype(x.device))


def constant(numbers: tuple[float, ...], like: Tensor) -> Tensor:
    """The numbers in the dtype and on the device of `like`: made once for both, because the host waits for the copy."""
    if torch.compiler.is_compiling():
        return like.new_tensor(numbers)
    return _constant(numbers, like.dtype, like.device, torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE))


@lru_cache
def _constant(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device, mode: object) -> Tensor:
    """In a cache for every mode of fake tensors, because these cannot be mixed with others."""
    with torch.inference_mode(False):
        return torch.tensor(numbers, dtype=dtype, device=device)


def without_dtype_change(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """What a module's `_apply` does to a tensor, without a change of its dtype: bfloat16 cannot hold a sum.

    float64 becomes float32 on devices without it.
    """

    def move(x: Tensor) -> Tensor:
        device = change(torch.empty(0, device=x.device)).device
        return (x.to(wide_dtype(device)) if x.dtype == torch.float64 else x).to(device)

    return move


def is_transformed() -> bool:
    """Whether a compiler, or a transform such as vmap, follows the computation."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def is_eager_without_grad(x: Tensor) -> bool:
    """Whether neither autograd, nor a transform, nor a compiler follows what is computed from `x`.

    If so, the rules of an autograd.Function are not needed, and a direct call of its body saves a tenth of a
    millisecond.
    """
    if is_transformed() or (x.requires_grad and torch.is_grad_enabled()):
        return False
    return torch.autograd.forward_ad._current_level < 0
