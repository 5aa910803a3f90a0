"""Loss and concentration as one operator of torch, for coins that need no gradient."""

from typing import Any

import torch
from torch import Tensor

from . import compiled
from .launch import check_pair, on_triton

BLOCK, WARPS = 512, 4


@torch.library.custom_op(
    "torch_boc::coins",
    mutates_args=(),
    schema="(Tensor odds, Tensor squares, int classes) -> (Tensor loss, Tensor concentration)",
)
def coins(odds: Tensor, squares: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """What `functional.coins.coins_from_rows` makes of the sums of three or more classes, in the dtype of the odds.

    Without a gradient: where one is needed, the formulas there have it.
    """
    out = _empty(odds, squares)
    odds, squares = odds.contiguous(), squares.contiguous()
    if odds.numel() and on_triton(odds):
        from . import coins_triton

        grid = (-(-odds.numel() // BLOCK),)
        with torch.cuda.device_of(odds):
            # As torch divides and rounds: the result is the same to the last bit.
            options = {"block": BLOCK, "num_warps": WARPS, "enable_fp_fusion": False}
            coins_triton.coins[grid](odds, squares, *out, odds.numel(), classes - 1, **options)
    elif odds.numel():
        compiled.coins(odds, squares, *out, classes)
    return out


def _empty(odds: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    check_pair(squares, odds)
    if odds.dtype not in (torch.float32, torch.float64) or squares.dtype != torch.float64:
        raise TypeError(
            f"expected odds in float32 or float64 and squares in float64, got {odds.dtype}, {squares.dtype}"
        )
    return odds.new_empty(odds.shape), odds.new_empty(odds.shape)


@coins.register_fake
def _(odds: Tensor, squares: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    return _empty(odds, squares)


@coins.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], odds: Tensor, squares: Tensor, classes: int) -> tuple[Any, tuple[int, int]]:
    both = ((odds, in_dims[0]), (squares, in_dims[1]))
    batched = [x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in both]
    return coins(*batched, classes), (0, 0)
