"""The one pass over the logits: every quantity of the probe is a function of a few sums per row.

With u_j = exp(z_j - z_top) over the rivals j (the classes other than the top one):

    odds      R = sum_j u_j
    squares   Q = sum_j u_j^2 / (1 + u_j)
    surprise      sum_j u_j (z_top - z_j)
    margin        sum_j (z_top - z_j)

The top class's own u = 1 is never added: in float32 it would swallow every R below 1e-7. Q is summed times 2^100
because the square of a u below 1e-19 underflows in float32: that leaves room for 10^8 classes above and for u = 1e-34
below. The factor is written out where it is used: torch.compile takes a float by name for an input.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .blocks import blockwise, fill_blockwise
from .precision import accumulator, widen

# From here on, finding the top in two steps beats torch.max on CPU, which does not vectorise the search for the index.
TWO_STEP_CLASSES = 2048
STRIPES = 16


class Rows(NamedTuple):
    """The sums of each row and its top class, all without the class axis; the last two only where asked for.

    `squares` is in float64 (float32 on MPS), the others in the dtype in which the sums are taken.
    """

    prediction: Tensor
    top: Tensor
    odds: Tensor
    squares: Tensor
    surprise: Tensor | None = None
    margin: Tensor | None = None


def row_sums(logits: Tensor, *, extras: bool = False) -> Rows:
    """The sums over the last axis of `logits`, with `surprise` and `margin` if `extras` are asked for.

    By the fused kernels where `torch_boc.kernels` says so; what follows is the path in torch's own operations.
    """
    from .. import kernels  # here, for they are built on this layer

    if kernels.choice.fuse_rows(logits):
        return Rows(*kernels.row_sums(logits, extras))
    return Rows(*_RowSums.apply(logits, extras))


def wide_row_sums(logits: Tensor, *, extras: bool = False) -> Rows:
    """`row_sums` with every sum in float64 (float32 on MPS), for work in which a confidence of 1 - 1e-12 is not 1."""
    rows = row_sums(logits, extras=extras)
    extra = [widen(x) for x in (rows.surprise, rows.margin) if x is not None]
    return Rows(rows.prediction, widen(rows.top), widen(rows.odds), widen(rows.squares), *extra)


class _RowSums(torch.autograd.Function):
    """Saves the logits alone and recomputes the rest, so that backward is as frugal as forward."""

    @staticmethod
    def forward(logits: Tensor, extras: bool) -> tuple[Tensor, ...]:
        return sums_by_blocks(logits, extras)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        logits, ctx.extras = inputs
        ctx.mark_non_differentiable(output[0])
        ctx.save_for_backward(logits)

    @staticmethod
    def backward(ctx: Any, _: Tensor, *grads: Tensor) -> tuple[Tensor, None]:
        (logits,) = ctx.saved_tensors
        columns = [g.unsqueeze(-1) for g in grads]
        if torch.compiler.is_compiling():
            return gradient(logits, *columns), None
        # Of whatever kind the logits or a gradient is: vmap may have batched one and not the others.
        kind = logits[..., :1] + sum(columns)
        return gradient_by_blocks(kind.new_empty(logits.shape, dtype=logits.dtype), logits, grads), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], logits: Tensor, extras: bool) -> tuple[tuple[Tensor, ...], int]:
        return _RowSums.apply(logits.movedim(in_dims[0], 0), extras), 0


def sums_by_blocks(logits: Tensor, extras: bool) -> tuple[Tensor, ...]:
    """The fields of Rows."""
    return blockwise(lambda z: _sums(z, extras), logits)


def gradient_by_blocks(out: Tensor, logits: Tensor, grads: Sequence[Tensor]) -> Tensor:
    """`out` filled with the gradient of the logits from those of top, odds, squares and so on."""
    return fill_blockwise(out, gradient, logits, *(grad.unsqueeze(-1) for grad in grads))


def _sums(logits: Tensor, extras: bool) -> tuple[Tensor, ...]:
    prediction, top, below = _top(logits)
    margin = -below.sum(-1, keepdim=True) if extras else None
    finite = _finite(below) if extras else None
    loses, odds = _coins(below, prediction)
    undefined = top - top  # 0, or NaN where the top is NaN or infinite: such a row has no geometry
    rows = [prediction, top + undefined, odds.sum(-1, keepdim=True) * 2.0**-100 + undefined]
    rows += [widen(loses.mul_(odds).sum(-1, keepdim=True)) * 2.0**-100 + undefined]
    if finite is not None and margin is not None:
        rows += [finite.mul_(odds).sum(-1, keepdim=True) * -(2.0**-100) + undefined, margin + undefined]
    return tuple(x.squeeze(-1) for x in rows)


def _coins(below: Tensor, prediction: Tensor) -> tuple[Tensor, Tensor]:
    """The chance u / (1 + u) that the top loses to each class, and 2^100 u; both 0 for the top itself.

    `below` is used up: what is reused stays in the cache.
    """
    if torch.compiler.is_compiling():
        odds = _put(below.exp(), prediction, 0.0)
        return odds / (1 + odds), odds * 2.0**100
    # Not exp: where it underflows, as it does for confident networks, eager exp takes a slow path on the CPU.
    loses = below.sigmoid_().scatter_(-1, prediction, 0.0)
    odds = torch.rsub(loses, 2.0**-100, alpha=2.0**-100)
    return loses, torch.div(loses, odds, out=odds)


def gradient(
    logits: Tensor, top: Tensor, odds: Tensor, squares: Tensor, surprise: Tensor | None = None, margin: Any = 0.0
) -> Tensor:
    """The gradient of the logits from those of the sums; what pulls on the rivals pushes the top."""
    prediction, largest, below = _top(logits)
    odds = odds + (largest - largest)  # NaN where the top is infinite: such a row has no gradient
    loses = _put(torch.sigmoid(below), prediction, 0.0)
    # d(u) = u and d(u^2/(1+u)) = u w (2 - w) with w = u/(1+u). The gradient of Q grows as 1/R^2, past what float32
    # can hold: it is scaled until it has met w.
    small = (squares * 2.0**-100).to(loses.dtype)
    each = odds + (small * loses) * torch.rsub(loses, 2.0**101, alpha=2.0**100)
    if surprise is not None:
        each = each - surprise * (1 + _finite(below))
    rivals = loses / (1 - loses) * each - margin
    return _put(rivals, prediction, top - rivals.sum(-1, keepdim=True) - margin).to(logits.dtype)


def _finite(below: Tensor) -> Tensor:
    """A finite stand-in for -inf, which a weight of 0 turns into 0 and not into NaN."""
    return below.clamp_min(-1e30)


def _top(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Index and value of the largest logit, and every logit's distance below it, in the accumulator's dtype."""
    z = logits.to(accumulator(logits.dtype))
    classes = z.shape[-1]
    if torch.compiler.is_compiling() and classes <= 2**24:  # up to here float32 counts classes exactly
        top = z.amax(-1, keepdim=True)
        places = torch.arange(classes, dtype=z.dtype, device=z.device)
        prediction = torch.where(z == top, places, classes - 1.0).amin(-1, keepdim=True).long()
    elif z.device.type == "cpu" and classes >= TWO_STEP_CLASSES:
        prediction = _argmax_in_two_steps(z)
        top = z.gather(-1, prediction)
    else:
        top, prediction = z.max(-1, keepdim=True)
    return prediction, top, z - top


def _argmax_in_two_steps(z: Tensor) -> Tensor:
    """The largest of each column of STRIPES logits (vectorised), the largest of those, and its place in its column."""
    width = z.shape[-1] // STRIPES
    covered = width * STRIPES
    columns = z[..., :covered].unflatten(-1, (STRIPES, width)).amax(-2)
    best = torch.cat([columns, z[..., covered:]], -1).argmax(-1, keepdim=True)
    stripes = torch.arange(STRIPES, device=z.device) * width
    # A best in the remainder is its own only candidate.
    candidates = torch.where(best < width, best + stripes, best - width + covered)
    return candidates.gather(-1, z.gather(-1, candidates).argmax(-1, keepdim=True))


def _put(x: Tensor, index: Tensor, value: Tensor | float) -> Tensor:
    """`x` with `value` at `index` of the last axis; a select when compiled, because it fuses and a scatter does not."""
    if torch.compiler.is_compiling():
        return torch.where(torch.arange(x.shape[-1], device=x.device) == index, value, x)
    return x.scatter(-1, index, value)
