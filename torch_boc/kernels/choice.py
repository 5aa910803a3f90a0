"""Which path computes what: decided here alone, by the user's word, the device, the dtype and the size."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from .cpu.calls import DTYPES, MOST_TRIALS
from .trial import is_trusted
from .triton.launch import available

PATHS = ("auto", "torch", "triton", "compiled")
TRITON_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

_chosen = "auto"


@contextmanager
def use(path: str) -> Iterator[None]:
    """Choose how the probe is computed within a `with` block; results agree up to rounding.

    The choice is that of the whole process: blocks in several threads must not overlap.

    Args:
        path: one of
            "auto": Triton kernels on a GPU that Triton knows, once a short trial has found them to work there; torch's
            own operations elsewhere. So it is without a block;
            "torch": torch's own operations, the reference;
            "triton": the Triton kernels, untried; tensors of other devices are an error. Inside of torch.compile they
            stay one operator each, where "auto" leaves everything to the compiler;
            "compiled": on the CPU, kernels in C++ that the machine's own compiler makes within seconds, once, and that
            are kept in ~/.cache/torch_boc. float64 logits, and more than 1,000 trials, go by "torch", and other
            devices by "auto".

    >>> with use("torch"):
    ...     coins = bag_of_coins(torch.tensor([[2.0, 1.0, 0.0, -1.0]]))
    """
    global _chosen
    if path not in PATHS:
        raise ValueError(f"expected a path among {', '.join(PATHS)}, got {path!r}")
    before, _chosen = _chosen, path
    try:
        yield
    finally:
        _chosen = before


def fuse_rows(logits: Tensor) -> bool:
    """Whether `torch_boc::row_sums` is to take the sums of these logits."""
    return _fuse(logits.device.type, logits.dtype)


def fuse_coins(odds: Tensor, classes: int) -> bool:
    """Whether `torch_boc::coins` is to make coins of these sums: it has no gradient, and two classes are simpler."""
    needs_gradient = odds.requires_grad and torch.is_grad_enabled()
    return classes > 2 and not needs_gradient and _fuse(odds.device.type, torch.float32)


def fuse_tails(odds: Tensor, trials: int) -> bool:
    """Whether `torch_boc::log_tail` and `torch_boc::log_p_value` are to take the tails of these odds."""
    if odds.device.type == "cpu" and _chosen == "compiled" and trials > MOST_TRIALS:
        return False
    return _fuse(odds.device.type, torch.float32)


def _fuse(device: str, dtype: torch.dtype) -> bool:
    if _chosen == "torch" or (_chosen == "auto" and device == "cpu"):
        return False
    if _chosen == "triton" and not available(device):
        raise RuntimeError(
            f'expected tensors on a GPU that Triton knows, got tensors on {device}: choose "auto" or "torch"'
        )
    if torch.compiler.is_compiling():
        return _chosen == "triton" and dtype in TRITON_DTYPES  # else the compiler fuses torch's operations as it likes
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        return False  # for which torch's operations have rules, nested ones too
    if _chosen == "compiled" and device == "cpu":
        return dtype in DTYPES
    return available(device) and dtype in TRITON_DTYPES and (_chosen == "triton" or is_trusted())
