"""Loss, concentration and free gap as one operator of torch, for coins that need no gradient."""

from typing import Any

import torch
from torch import Tensor

from .cpu import calls as native
from .triton.launch import check_pair, launch, load, on_triton

BLOCK, WARPS = 512, 4
OUTPUTS = 3


@torch.library.custom_op(
    "torch_boc::coins",
    mutates_args=(),
    schema="(Tensor odds, Tensor squares, Tensor mass, Tensor mass_squares, int classes) -> "
    "(Tensor loss, Tensor concentration, Tensor free_gap)",
)
def coins(
    odds: Tensor, squares: Tensor, mass: Tensor, mass_squares: Tensor, classes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The same as `core.coins.coins_by_formula`, in the dtype of the odds.

    It has no gradient. Where one is needed, use the formulas in `core`.
    """
    out = _empty(odds, squares, mass, mass_squares)
    sums = [x.contiguous() for x in (odds, squares, mass, mass_squares)]
    if odds.numel() and on_triton(odds):
        grid = (-(-odds.numel() // BLOCK),)
        # Division and rounding as in torch, so that the result is the same to the last bit.
        options = {"block": BLOCK, "num_warps": WARPS, "enable_fp_fusion": False}
        launch(load("coins").coins, grid, odds, *sums, *out, odds.numel(), classes - 1, **options)
    elif odds.numel():
        native.coins(classes, *sums, *out)
    return out


def _empty(odds: Tensor, *wide: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    for x in wide:
        check_pair(x, odds)
    if odds.dtype not in (torch.float32, torch.float64) or any(x.dtype != torch.float64 for x in wide):
        got = ", ".join(str(x.dtype) for x in (odds, *wide))
        raise TypeError(f"expected odds in float32 or float64 and squares and masses in float64, got {got}")
    return odds.new_empty(odds.shape), odds.new_empty(odds.shape), odds.new_empty(odds.shape)


@coins.register_fake
def _(odds: Tensor, squares: Tensor, mass: Tensor, mass_squares: Tensor, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    return _empty(odds, squares, mass, mass_squares)


@coins.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, tuple[int, ...]]:
    sums = zip(arguments[:4], in_dims[:4], strict=True)
    batched = [x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in sums]
    return coins(*batched, arguments[4]), (0,) * OUTPUTS
