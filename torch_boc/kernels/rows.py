"""The kernels as operators of torch, so that compilation, export, FakeTensor, autograd and vmap know them."""

from typing import Any

import torch
from torch import Tensor

from ..core.rows import gradient, gradient_by_blocks
from .cpu import calls as native
from .triton.launch import empty_gradient, empty_rows, launch_gradient, launch_rows, on_triton


# The schema is written out because older versions of torch do not infer it from list[Tensor].
@torch.library.custom_op("torch_boc::row_sums", mutates_args=(), schema="(Tensor logits, bool extras) -> Tensor[]")
def row_sums(logits: Tensor, extras: bool) -> list[Tensor]:
    """`core.rows.row_sums` in one pass: the fields of its Rows, the last two only with `extras`."""
    if on_triton(logits):
        return launch_rows(logits, extras)
    sums = native.row_sums(logits, extras)
    return sums[:4] + sums[6:]  # without those of core/spread.py, which are an operator of their own


@torch.library.custom_op("torch_boc::row_sums_backward", mutates_args=())
def row_sums_backward(
    logits: Tensor,
    prediction: Tensor,
    top: Tensor,
    on_top: Tensor,
    on_odds: Tensor,
    on_squares: Tensor,
    on_surprise: Tensor | None,
    on_margin: Tensor | None,
) -> Tensor:
    """The gradient of the logits from those of the sums, recomputed from the logits and their tops."""
    grads = [on_top, on_odds, on_squares, on_surprise, on_margin]
    if on_triton(logits):
        return launch_gradient(logits, prediction, top, grads)
    return gradient_by_blocks(empty_gradient(logits), logits, [x for x in grads if x is not None])


@row_sums.register_fake
def _(logits: Tensor, extras: bool) -> list[Tensor]:
    return empty_rows(logits, extras)


@row_sums_backward.register_fake
def _(logits: Tensor, *rest: Tensor | None) -> Tensor:
    return empty_gradient(logits)


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.save_for_backward(inputs[0], output[0], output[1])


def _backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Tensor, None]:
    logits, prediction, top = ctx.saved_tensors
    kinds = [top.dtype, top.dtype, torch.float64, top.dtype, top.dtype]
    given = [
        torch.zeros_like(top, dtype=kind) if grad is None else grad.to(kind)
        for grad, kind in zip(grads[1:], kinds, strict=False)
    ]
    return row_sums_backward(logits, prediction, top, *given, *[None] * (5 - len(given))), None


row_sums.register_autograd(_backward, setup_context=_save)


def _save_all(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward_twice(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The second derivative, which is rarely needed: it uses the formulas in torch."""
    logits, _, _, *grads = ctx.saved_tensors
    given = [x for x in grads if x is not None]
    pull = torch.func.vjp(lambda z, *rest: gradient(z, *(x.unsqueeze(-1) for x in rest)), logits, *given)[1]
    on_logits, *on_given = pull(grad)
    return on_logits, None, None, *on_given, *[None] * (5 - len(given))


row_sums_backward.register_autograd(_backward_twice, setup_context=_save_all)


@row_sums.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], logits: Tensor, extras: bool) -> tuple[list[Tensor], list[int]]:
    out = row_sums(logits.movedim(in_dims[0], 0), extras)
    return out, [0] * len(out)


@row_sums_backward.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], *tensors: Tensor | None) -> tuple[Tensor, int]:
    batched = [
        x if x is None else x.movedim(dim, 0) if dim is not None else x.expand(info.batch_size, *x.shape)
        for x, dim in zip(tensors, in_dims, strict=True)
    ]
    return row_sums_backward(*batched), 0
