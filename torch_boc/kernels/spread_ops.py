"""The sums that the concentration is taken from as one operator of torch, which reads flat and sharp rows alone."""

import torch
from torch import Tensor

from ..functional.precision import accumulator
from .launch import as_matrix, check_pair, on_triton

WIDTH, WARPS = 1024, 4


@torch.library.custom_op("torch_boc::spread", mutates_args=())
def spread(logits: Tensor, odds: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """What `functional.spread.spread_sums` gives, in float64; without a gradient, which the function has."""
    check_pair(squares, odds)
    if not on_triton(logits):
        from ..functional.spread import some_rows

        return some_rows(logits, odds, squares)
    out = squares.new_empty(squares.shape), squares.new_empty(squares.shape)
    if logits.numel():
        from . import rows_triton, spread_triton

        matrix, dtype = as_matrix(logits), accumulator(logits.dtype)
        options = {"dtype": rows_triton.DTYPES[dtype], "width": WIDTH, "num_warps": WARPS, "enable_fp_fusion": True}
        arguments = (matrix, odds.contiguous(), squares.contiguous(), *out, matrix.shape[1], matrix.stride(0))
        with torch.cuda.device_of(logits):
            spread_triton.spread[(len(matrix),)](*arguments, **options)
    return out


@spread.register_fake
def _(logits: Tensor, odds: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    check_pair(squares, odds)
    return squares.new_empty(squares.shape), squares.new_empty(squares.shape)
