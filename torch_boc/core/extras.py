"""Numbers of each row that only some scores need, beside the sums of `rows.py`.

With b_j = z_j - z_top over the rivals j, R = sum_j exp(b_j), and p_j the softmax probability of class j:

    log_odds       -log R = log(p / (1 - p)) of the top class, which does not underflow as R does
    tempered_loss  mean_j sigmoid(b_j / T), with T = 4 unless another T is given
    top_margin     minus the sum of b_j over the N nearest rivals
    gen            sum of (p_j (1 - p_j))^0.1 over the 100 largest p_j

They are written in torch's operations, which autograd differentiates.
"""

from typing import Any, cast

import torch
from torch import Tensor

from .blocks import blockwise, fill_blockwise
from .precision import is_plain, widen
from .top import find_top

EXTRAS = ("log_odds", "tempered_loss", "top_margin", "gen")
TEMPERATURE = 4.0
EXPONENT = 0.1
LARGEST = 100


def nearest_rivals(num_classes: int) -> int:
    """How many rivals N the top margin is over: half of the classes up to 10, and a fifth of many classes up to 200.

    The scripts of the authors of LogitGap have 5 rivals for 10 classes and 10 for 20. For 100 and for 1,000 classes, a
    fifth is what others take.
    """
    # These functions do not ask a compiler that does not know the number of classes which of the numbers is larger.
    few, many = torch.sym_min(num_classes // 2, 10), torch.sym_min(num_classes // 5, 200)
    return cast(int, torch.sym_max(few, many))


def extras_by_blocks(
    logits: Tensor, names: tuple[str, ...], *, log_odds: Tensor | None = None, temperature: float | Tensor = TEMPERATURE
) -> tuple[Tensor, ...]:
    """The logits, then the numbers with these names, of EXTRAS, for each row, in float64 (float32 on MPS).

    Where autograd follows, only the logits are kept for backward, and each piece is computed again there. If something
    else is computed from the logits too, compute it from those that are returned: then both share one gradient.

    Args:
        logits: shape (..., C).
        names: some of EXTRAS.
        log_odds: the log odds of each row, if they are known. Then there is no gradient.
        temperature: of the tempered loss.
    """
    given = () if log_odds is None else (log_odds.unsqueeze(-1),)
    if is_plain(logits):
        return logits, *blockwise(lambda z, *known: _numbers(z, names, temperature, *known), logits, *given)
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or not logits.requires_grad:
        return logits, *_numbers(logits, names, temperature, *given)
    found: tuple[Tensor, ...] = _Numbers.apply(logits, names, temperature)
    return found


class _Numbers(torch.autograd.Function):
    """Saves only the logits and computes each piece again, so that backward needs as little memory as forward."""

    @staticmethod
    def forward(logits: Tensor, names: tuple[str, ...], temperature: float | Tensor) -> tuple[Tensor, ...]:
        return logits.view_as(logits), *blockwise(lambda z: _numbers(z, names, temperature), logits)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        logits, ctx.names, ctx.temperature = inputs
        ctx.save_for_backward(logits)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, on_logits: Tensor | None, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:
        (logits,) = ctx.saved_tensors
        if all(grad is None for grad in grads):
            return on_logits, None, None
        nothing = next(torch.zeros_like(grad) for grad in grads if grad is not None)
        columns = [(nothing if grad is None else grad).unsqueeze(-1) for grad in grads]

        def gradient(z: Tensor, *given: Tensor) -> Tensor:
            pull = torch.func.vjp(lambda x: _numbers(x, ctx.names, ctx.temperature), z)[1]
            own: Tensor = pull(tuple(x.squeeze(-1) for x in given[: len(columns)]))[0]
            return sum(given[len(columns) :], own)

        others = () if on_logits is None else (on_logits,)
        return fill_blockwise(torch.empty_like(logits), gradient, logits, *columns, *others), None, None


def _numbers(
    logits: Tensor, names: tuple[str, ...], temperature: float | Tensor, known: Tensor | None = None
) -> tuple[Tensor, ...]:
    prediction, top, below = find_top(logits)
    is_top = torch.arange(logits.shape[-1], device=logits.device) == prediction
    rivals = below.masked_fill(is_top, -torch.inf)
    found = {}
    if "log_odds" in names or "gen" in names:
        found["log_odds"] = -log_rest(rivals) if known is None else known.squeeze(-1)
    if "tempered_loss" in names:
        found["tempered_loss"] = tempered_losses(rivals, temperature) / (rivals.shape[-1] - 1)
    if "top_margin" in names:
        found["top_margin"] = top_margin(below, nearest_rivals(below.shape[-1]))
    if "gen" in names:
        found["gen"] = generalized_entropy(rivals, -found["log_odds"])
    undefined = widen((top - top).detach().squeeze(-1))  # NaN where the top is NaN or infinite
    return tuple(found[name] + undefined for name in names)


def log_rest(rivals: Tensor) -> Tensor:
    """The log of R of each row, relative to the second largest logit; -inf where R is 0."""
    second = rivals.detach().amax(-1, keepdim=True).clamp_min(torch.finfo(rivals.dtype).min)
    total = (rivals - second).exp().sum(-1)
    nothing = total == 0.0
    log_total = widen(torch.where(nothing, 1.0, total)).log()  # not the log of 0, whose gradient would be NaN
    return (widen(second.squeeze(-1)) + log_total).masked_fill(nothing, -torch.inf)


def tempered_losses(rivals: Tensor, temperature: float | Tensor) -> Tensor:
    """The sum over the rivals of the chance that the top loses a coin flip at this temperature."""
    return widen(torch.sigmoid(rivals / temperature).sum(-1))


def top_margin(below: Tensor, number: int) -> Tensor:
    """The sum of the distances of the nearest rivals. The top itself is among `below`, with a distance of 0."""
    return -widen(_largest(below, number + 1).sum(-1))


def generalized_entropy(rivals: Tensor, rest: Tensor) -> Tensor:
    """The sum of (p (1 - p))^0.1 over the 100 largest probabilities; `rest` is log R, and `rivals` is -inf at the top.

    Everything is in logarithms. For the top, p = 1 / (1 + R) and 1 - p = R / (1 + R), so that no digits are lost.
    """
    log_top = -torch.nn.functional.softplus(rest)
    # The top itself, at -inf, adds nothing, so that all classes may be taken for all rivals.
    nearest = _largest(rivals, cast(int, torch.sym_min(LARGEST, rivals.shape[-1])) - 1, beside=1)
    log_p = nearest.clamp_min(-1e30) + log_top.to(rivals.dtype).unsqueeze(-1)
    each = (EXPONENT * (log_p + torch.log1p(-log_p.exp()))).exp()
    return widen(each.sum(-1)) + (EXPONENT * (rest + 2.0 * log_top)).exp()


def _largest(x: Tensor, number: int, *, beside: int = 0) -> Tensor:
    """The largest `number` entries of each row, in any order, and up to `beside` others if they are all then."""
    # A compiler does not ask whether they are all, because it may not know the number of classes.
    if not torch.compiler.is_compiling() and number + beside >= x.shape[-1]:
        return x
    return x.topk(number, -1, sorted=False).values
