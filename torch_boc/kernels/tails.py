"""The binomial log-tail as operators of torch, for given wins and for the expected wins of a loss; one launch each."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .cpu import calls as native
from .triton.cards import fraction_steps
from .triton.launch import check_pair, launch, load, on_triton

# One thread for each tail, because a tail needs much computation and little reading.
BLOCK, WARPS = 128, 4


def _tails(first: Tensor, trials: int, odds: Tensor, *, expected: bool) -> tuple[Tensor, Tensor]:
    check_pair(first, odds)
    if on_triton(odds):
        return _launch("log_p_values" if expected else "log_tails", first, trials, odds)
    return native.log_tails(first, trials, odds, expected=expected)


def _launch(name: str, first: Tensor, trials: int, odds: Tensor) -> tuple[Tensor, Tensor]:
    """Start the kernel `name` on every pair of elements, if there are any."""
    out = empty_tails(odds)
    if odds.numel():
        grid = (-(-odds.numel() // BLOCK),)
        inputs = (first.contiguous(), odds.contiguous())
        options = {"block": BLOCK, "num_warps": WARPS, "enable_fp_fusion": False}
        sizes = (odds.numel(), trials, fraction_steps(odds, trials))
        launch(getattr(load("tails"), name), grid, odds, *inputs, *out, *sizes, **options)
    return out


def empty_tails(odds: Tensor) -> tuple[Tensor, Tensor]:
    """Empty tensors for the results, the logarithm and its derivative; both are float64."""
    shape = odds.shape
    return odds.new_empty(shape, dtype=torch.float64), odds.new_empty(shape, dtype=torch.float64)


# The schemas are written out because torch would infer SymInt for trials, on which the number of steps depends.
@torch.library.custom_op(
    "torch_boc::log_tail",
    mutates_args=(),
    schema="(Tensor wins, int trials, Tensor odds) -> (Tensor log_tail, Tensor slope)",
)
def log_tail(wins: Tensor, trials: int, odds: Tensor) -> tuple[Tensor, Tensor]:
    """`functional.binomial_log_tail` of tensors of one shape, and its derivative in `odds`, both in float64.

    It can be differentiated once, in `odds`; a second derivative is an error, as in `functional`. The derivative that
    it returns has no gradient.
    """
    return _tails(wins, trials, odds, expected=False)


@torch.library.custom_op(
    "torch_boc::log_p_value",
    mutates_args=(),
    schema="(Tensor loss, int trials, Tensor odds) -> (Tensor log_p, Tensor slope)",
)
def log_p_value(loss: Tensor, trials: int, odds: Tensor) -> tuple[Tensor, Tensor]:
    """`log_tail` at the expected wins round(trials (1 - loss)), half to even. No gradient goes through the wins."""
    return _tails(loss, trials, odds, expected=True)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])
    ctx.dtype = inputs[2].dtype


@once_differentiable
def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[None, None, Tensor]:
    (slope,) = ctx.saved_tensors
    return None, None, (grad * slope).to(ctx.dtype)


def _register(operator: Any) -> None:
    """Register what both operators have in common: shapes, gradient, and the rule for vmap."""

    def mapped(info: Any, in_dims: tuple[Any, ...], first: Tensor, trials: int, odds: Tensor) -> tuple[Any, Any]:
        first, odds = (
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in ((first, in_dims[0]), (odds, in_dims[2]))
        )
        return operator(first, trials, odds), (0, 0)

    def fake(first: Tensor, trials: int, odds: Tensor) -> tuple[Tensor, Tensor]:
        check_pair(first, odds)
        return empty_tails(odds)

    operator.register_fake(fake)
    operator.register_autograd(_backward, setup_context=_save)
    operator.register_vmap(mapped)


_register(log_tail)
_register(log_p_value)
