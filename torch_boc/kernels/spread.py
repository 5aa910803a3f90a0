"""The sums for the concentration as one operator of torch, which reads only the flat and the sharp rows again."""

from typing import Any

import torch
from torch import Tensor

from ..core.blocks import fill_blockwise
from ..core.spread import gradient, is_flat, some_rows, spread_columns
from .triton.launch import check_pair, launch_spread, on_triton


@torch.library.custom_op("torch_boc::spread", mutates_args=())
def spread(logits: Tensor, odds: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """What `core.spread.spread_sums` gives, in float64."""
    check_pair(squares, odds)
    if not on_triton(logits):
        return some_rows(logits, odds, squares)
    return launch_spread(logits, odds, squares)


@spread.register_fake
def _(logits: Tensor, odds: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    check_pair(squares, odds)
    return squares.new_empty(squares.shape), squares.new_empty(squares.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    logits, odds, _ = inputs
    ctx.save_for_backward(logits, is_flat(odds, logits.shape[-1]), output[0])


def _backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
    logits, flat, mass = ctx.saved_tensors
    columns = spread_columns(logits, flat, mass, *grads)
    return fill_blockwise(torch.empty_like(logits), gradient, logits, *columns), None, None


spread.register_autograd(_backward, setup_context=_save)
