"""How a given class stands among the others of its row, as one operator of torch, for logits that need no gradient."""

from typing import Any

import torch
from torch import Tensor

from .cpu.calls import standing as native_standing
from .triton.launch import on_triton
from .triton.launch_standing import standing as launch_standing


@torch.library.custom_op(
    "torch_boc::standing", mutates_args=(), schema="(Tensor logits, Tensor index) -> (Tensor lost, Tensor ahead)"
)
def standing(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """`core.standing.standing` in one pass: logits of shape (..., C), and an index of shape (...) in int64.

    It has no gradient. Where one is needed, use the formulas in `core`.
    """
    if index.dtype != torch.int64 or index.shape != logits.shape[:-1] or index.device != logits.device:
        raise ValueError(
            f"expected an index of shape {tuple(logits.shape[:-1])}, in int64 on {logits.device}, "
            f"got shape {tuple(index.shape)}, {index.dtype} on {index.device}"
        )  # kernels get pointers, and cannot check this
    if logits.shape[-1] < 1:
        raise ValueError(f"expected at least 1 class, got logits of shape {tuple(logits.shape)}")
    return (launch_standing if on_triton(logits) else native_standing)(logits, index)


@standing.register_fake
def _(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    shape = logits.shape[:-1]
    return logits.new_empty(shape, dtype=torch.float64), logits.new_empty(shape, dtype=torch.int64)


@standing.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], logits: Tensor, index: Tensor) -> tuple[Any, tuple[int, int]]:
    pairs = zip((logits, index), in_dims, strict=True)
    batched = [x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in pairs]
    return standing(*batched), (0, 0)
