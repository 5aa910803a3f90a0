"""The sums of each row as one operator of torch, so that compilation, export, FakeTensor, autograd and vmap know them.

The sums are in the order of `SUMS`, because an operator returns tensors without names.
"""

from typing import Any

import torch
from torch import Tensor

from ..core.precision import accumulator
from ..core.rows import Rows, gradient
from ..core.spread import gradient as spread_gradient
from ..core.spread import is_flat, spread_columns
from .cpu.calls import row_sums as native_rows
from .cpu.gradient import gradient as native_gradient
from .triton.launch import empty_gradient, empty_sums, launch_gradient, launch_sums, on_triton

SUMS = ("prediction", "top", "odds", "squares", "mass", "mass_squares", "surprise", "margin")


# The schema is written out because older versions of torch do not infer it from list[Tensor].
@torch.library.custom_op("torch_boc::row_sums", mutates_args=(), schema="(Tensor logits, bool extras) -> Tensor[]")
def row_sums(logits: Tensor, extras: bool) -> list[Tensor]:
    """`core.rows.row_sums` in one pass: the sums in the order of `SUMS`, the last two only with `extras`."""
    return (launch_sums if on_triton(logits) else native_rows)(logits, extras)


def named(sums: list[Tensor]) -> Rows:
    """The result of `row_sums` under the names of its parts."""
    return Rows(**dict(zip(SUMS, sums, strict=False)))


@torch.library.custom_op("torch_boc::row_sums_backward", mutates_args=())
def row_sums_backward(
    logits: Tensor,
    prediction: Tensor,
    top: Tensor,
    odds: Tensor,
    mass: Tensor,
    on_top: Tensor | None,
    on_odds: Tensor | None,
    on_squares: Tensor | None,
    on_mass: Tensor | None,
    on_mass_squares: Tensor | None,
    on_surprise: Tensor | None,
    on_margin: Tensor | None,
) -> Tensor:
    """The gradient of the logits from the gradients of the sums; any of these may be None.

    It is computed again from the logits and their tops. The odds and masses tell which rows are flat or sharp.
    """
    sums = [prediction, top, odds, mass]
    grads = [on_top, on_odds, on_squares, on_mass, on_mass_squares, on_surprise, on_margin]
    for x, kind in zip((*sums, *grads), _dtypes(logits), strict=True):
        if x is not None and (x.dtype != kind or x.shape != logits.shape[:-1] or x.device != logits.device):
            raise ValueError(
                f"expected sums and gradients of shape {tuple(logits.shape[:-1])}, in {kind} on {logits.device}, "
                f"got shape {tuple(x.shape)}, {x.dtype} on {x.device}"
            )  # kernels get pointers, and cannot check this
    return (launch_gradient if on_triton(logits) else native_gradient)(logits, sums, grads)


def _dtypes(logits: Tensor) -> list[torch.dtype]:
    """The dtypes of prediction, top, odds and mass, and of the gradients of all sums except the prediction."""
    narrow, wide = accumulator(logits.dtype), torch.float64
    return [torch.int64, narrow, narrow, wide, narrow, narrow, wide, wide, wide, narrow, narrow]


@row_sums.register_fake
def _(logits: Tensor, extras: bool) -> list[Tensor]:
    return empty_sums(logits, extras)


@row_sums_backward.register_fake
def _(logits: Tensor, *rest: Tensor | None) -> Tensor:
    return empty_gradient(logits)


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    # A sum that was not used has no gradient, so that the kernel has less to do.
    ctx.set_materialize_grads(False)
    prediction, top, odds, _, mass, *_ = output
    ctx.save_for_backward(inputs[0], prediction, top, odds, mass)


def _backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Tensor | None, None]:
    given = [*grads[1:], None, None][:7]
    if all(grad is None for grad in given):
        return None, None
    logits, *sums = ctx.saved_tensors
    kinds = _dtypes(logits)[len(sums) :]
    cast = [grad if grad is None else grad.to(kind) for grad, kind in zip(given, kinds, strict=True)]
    # The sums follow from the logits. They are detached here, and `_backward_twice` differentiates by the logits.
    return row_sums_backward(logits, *(x.detach() for x in sums), *cast), None


row_sums.register_autograd(_backward, setup_context=_save)


def _save_all(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward_twice(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The second derivative, by the formulas in torch, because it is rarely needed."""
    logits, _, _, odds, mass, *grads = ctx.saved_tensors
    present = [x is not None for x in grads]

    def formula(z: Tensor, *given: Tensor) -> Tensor:
        rest = iter(given)
        return _by_formula(z, odds, mass, *(next(rest) if here else None for here in present))

    pull = torch.func.vjp(formula, logits, *(x for x in grads if x is not None))[1]
    on_logits, *on_given = pull(grad)
    rest = iter(on_given)
    return on_logits, *[None] * 4, *(next(rest) if here else None for here in present)


def _by_formula(
    logits: Tensor,
    odds: Tensor,
    mass: Tensor,
    on_top: Tensor | None,
    on_odds: Tensor | None,
    on_squares: Tensor | None,
    on_mass: Tensor | None,
    on_mass_squares: Tensor | None,
    on_surprise: Tensor | None,
    on_margin: Tensor | None,
) -> Tensor:
    """What the kernels compute, by the formulas of `core`."""
    of_sums = [on_top, on_odds, on_squares, on_surprise, on_margin]
    nothing = torch.zeros_like(odds)
    whole = gradient(logits, *((nothing if x is None else x).unsqueeze(-1) for x in of_sums))
    if on_mass is None and on_mass_squares is None:
        return whole
    of_spread = [nothing if x is None else x for x in (on_mass, on_mass_squares)]
    columns = spread_columns(logits, is_flat(odds, logits.shape[-1]), mass, *of_spread)
    return whole + spread_gradient(logits, *columns)


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
