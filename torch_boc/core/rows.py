"""The one pass over the logits: every quantity of the probe is a function of a few sums per row.

With u_j = exp(z_j - z_top) over the rivals j (the classes other than the top one):

    odds      R = sum_j u_j
    squares   Q = sum_j u_j^2 / (1 + u_j)
    surprise      sum_j u_j (z_top - z_j)
    margin        sum_j (z_top - z_j)

The top class itself has u = 1. It is never added, because in float32 an R below 1e-7 would be lost beside it. Q is
summed times 2^100, because the square of a u below 1e-19 underflows in float32. With this factor, the sum of 10^8
classes does not overflow, and u may be as small as 1e-34. The factor is written as a number wherever it is used,
because torch.compile treats a float with a name as an input.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .blocks import blockwise, fill_blockwise
from .precision import accumulator, is_plain, widen
from .spread import gradient as spread_gradient
from .spread import is_flat, spread_columns, spread_sums
from .top import find_top


class Rows(NamedTuple):
    """The sums of each row and its top class, all without the class axis; surprise and margin only if asked for.

    `squares`, `mass` and `mass_squares` are in float64 (float32 on MPS), the others in the dtype in which the sums are
    taken. The concentration is computed from `mass` and `mass_squares` (see `spread.py`).
    """

    prediction: Tensor
    top: Tensor
    odds: Tensor
    squares: Tensor
    surprise: Tensor | None = None
    margin: Tensor | None = None
    mass: Tensor | None = None
    mass_squares: Tensor | None = None


def row_sums(logits: Tensor, *, extras: bool = False) -> Rows:
    """The sums over the last axis of `logits`, with `surprise` and `margin` if `extras` are asked for."""
    if is_plain(logits):
        sums = sums_by_blocks(logits, extras)
    elif torch.compiler.is_compiling():
        sums = _RowSums.apply(logits, extras)
    else:
        *sums, mass, mass_squares = _AllSums.apply(logits, extras)
        return _named(sums, mass, mass_squares)
    _, _, odds, squares, *_ = sums
    return _named(sums, *spread_sums(logits, odds, squares))


def _named(sums: Sequence[Tensor], mass: Tensor, mass_squares: Tensor) -> Rows:
    """All sums; four of them, or six with `surprise` and `margin`. torch 2.7 cannot compile `_replace`."""
    prediction, top, odds, squares, *more = sums
    surprise, margin = more or (None, None)
    return Rows(prediction, top, odds, squares, surprise, margin, mass, mass_squares)


class _RowSums(torch.autograd.Function):
    """Saves only the logits and recomputes the rest, so that backward needs as little memory as forward."""

    @staticmethod
    def forward(logits: Tensor, extras: bool) -> tuple[Tensor, ...]:
        return sums_by_blocks(logits, extras)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(output[0])
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, _: Tensor, *grads: Tensor) -> tuple[Tensor, None]:
        (logits,) = ctx.saved_tensors
        return gradient(logits, *(g.unsqueeze(-1) for g in grads)), None


class _AllSums(torch.autograd.Function):
    """`_RowSums` and the sums of `spread.py` together, piece by piece: both share one gradient of the logits.

    A compiler gets the two separately, and fuses what it needs of them.
    """

    @staticmethod
    def forward(logits: Tensor, extras: bool) -> tuple[Tensor, ...]:
        sums = sums_by_blocks(logits, extras)
        return *sums, *spread_sums(logits, sums[2], sums[3])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(output[0])
        ctx.save_for_backward(inputs[0], is_flat(output[2], inputs[0].shape[-1]), output[-2])

    @staticmethod
    def backward(ctx: Any, _: Tensor, *grads: Tensor | None) -> tuple[Tensor | None, None]:
        logits, flat, mass = ctx.saved_tensors
        if not any(grad is not None for grad in grads):
            return None, None
        nothing = torch.zeros_like(mass, dtype=accumulator(logits.dtype))
        columns = [(nothing if g is None else g).unsqueeze(-1) for g in grads]
        of_sums = columns[:-2]
        if grads[-1] is None and grads[-2] is None:
            return _fill(gradient, logits, *of_sums), None
        of_spread = spread_columns(logits, flat, mass, *(x.squeeze(-1) for x in columns[-2:]))

        def both(z: Tensor, *columns: Tensor) -> Tensor:
            return gradient(z, *columns[: len(of_sums)]) + spread_gradient(z, *columns[len(of_sums) :])

        return _fill(both, logits, *of_sums, *of_spread), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], logits: Tensor, extras: bool) -> tuple[tuple[Tensor, ...], int]:
        return _AllSums.apply(logits.movedim(in_dims[0], 0), extras), 0


def _fill(function: Callable[..., Tensor], logits: Tensor, *columns: Tensor) -> Tensor:
    """The gradient of the logits by `function`, piece by piece."""
    # The result must be batched if the logits or any gradient is: vmap may have batched one and not the others.
    kind = logits[..., :1] + sum(columns)
    return fill_blockwise(kind.new_empty(logits.shape, dtype=logits.dtype), function, logits, *columns)


def sums_by_blocks(logits: Tensor, extras: bool) -> tuple[Tensor, ...]:
    """The fields of Rows from `prediction` to `squares`, with `extras` also `surprise` and `margin`."""
    return blockwise(lambda z: _sums(z, extras), logits)


def _sums(logits: Tensor, extras: bool) -> tuple[Tensor, ...]:
    prediction, top, below = find_top(logits)
    margin = -below.sum(-1) if extras else None
    finite = _finite(below) if extras else None
    loses, odds = _coins(below, prediction)
    top = top.squeeze(-1)
    undefined = top - top  # 0, or NaN where the top is NaN or infinite: such a row has no defined result
    rows = [prediction.squeeze(-1), top + undefined, torch.add(undefined, odds.sum(-1), alpha=2.0**-100)]
    rows += [torch.add(undefined, widen(loses.mul_(odds).sum(-1)), alpha=2.0**-100)]
    if finite is not None and margin is not None:
        rows += [torch.add(undefined, finite.mul_(odds).sum(-1), alpha=-(2.0**-100)), margin + undefined]
    return tuple(rows)


def _coins(below: Tensor, prediction: Tensor) -> tuple[Tensor, Tensor]:
    """The chance u / (1 + u) that the top loses to each class, and 2^100 u; both 0 for the top itself.

    The memory of `below` is overwritten, because memory that is used again stays in the cache.
    """
    if torch.compiler.is_compiling():
        odds = _put(below.exp(), prediction, 0.0)
        return odds / (1 + odds), odds * 2.0**100
    # exp is not used: where it underflows, as it does for confident networks, eager exp is slow on the CPU.
    loses = below.sigmoid_().scatter_(-1, prediction, 0.0)
    odds = torch.rsub(loses, 2.0**-100, alpha=2.0**-100)
    return loses, torch.div(loses, odds, out=odds)


def gradient(
    logits: Tensor, top: Tensor, odds: Tensor, squares: Tensor, surprise: Tensor | None = None, margin: Any = 0.0
) -> Tensor:
    """The gradient of the logits from the gradients of the sums.

    The top logit gets the gradient of `top`, minus the sum of what its rivals get.
    """
    prediction, largest, below = find_top(logits)
    odds = odds + (largest - largest)  # NaN where the top is infinite: such a row has no gradient
    loses = _put(torch.sigmoid(below), prediction, 0.0)
    # d(u) = u and d(u^2/(1+u)) = u w (2 - w) with w = u/(1+u). The gradient of Q grows as 1/R^2, and float32
    # cannot hold it: therefore it stays scaled down until it is multiplied by w.
    small = (squares * 2.0**-100).to(loses.dtype)
    each = odds + (small * loses) * torch.rsub(loses, 2.0**101, alpha=2.0**100)
    if surprise is not None:
        each = each - surprise * (1 + _finite(below))
    rivals = loses / (1 - loses) * each - margin
    own: Tensor = top - rivals.sum(-1, keepdim=True) - margin
    return _put(rivals, prediction, own).to(logits.dtype)


def _finite(below: Tensor) -> Tensor:
    """`below` with a finite number in place of -inf, so that a weight of 0 gives 0 and not NaN."""
    return below.clamp_min(-1e30)


def _put(x: Tensor, index: Tensor, value: Tensor | float) -> Tensor:
    """`x` with `value` at `index` of the last axis; a select when compiled, because it fuses and a scatter does not."""
    if torch.compiler.is_compiling():
        return torch.where(torch.arange(x.shape[-1], device=x.device) == index, value, x)
    return x.scatter(-1, index, value)
