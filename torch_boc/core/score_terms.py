"""Numbers of each row that only some scores need, besides the sums of `row_sums.py`.

With b_j = z_j - z_top over the rivals j, R = sum_j exp(b_j), and p_j the softmax probability of class j:

    log_odds       -log R = log(p / (1 - p)) of the top class, which does not underflow as R does
    tempered_loss  mean_j sigmoid(b_j / T), with T = 4 unless another T is given
    top_margin     minus the sum of b_j over the N nearest rivals
    gen            sum of (p_j (1 - p_j))^0.1 over the 100 largest p_j

They are written in torch's operations, which autograd differentiates.
"""

from functools import partial
from typing import cast

import torch
from torch import Tensor

from .chunking import recompute_in_backward
from .dtypes import to_wide
from .schema import EXPONENT, LARGEST, NEAREST, TEMPERATURE
from .topk import find_top

EXTRAS = ("log_odds", "tempered_loss", "top_margin", "gen")


def nearest_rivals(num_classes: int) -> int:
    """How many rivals N the top margin is over: half of the classes up to 10, and a fifth of many classes up to 200.

    The scripts of the authors of LogitGap have 5 rivals for 10 classes and 10 for 20. For 100 and for 1,000 classes, a
    fifth is what others take.
    """
    # These functions do not ask a compiler that does not know the number of classes which of the numbers is larger.
    few, many = (torch.sym_min(num_classes // share, most) for share, most in NEAREST)
    return cast(int, torch.sym_max(few, many))


def extra_numbers(
    logits: Tensor, names: tuple[str, ...], *, temperature: float | Tensor = TEMPERATURE
) -> tuple[Tensor, ...]:
    """The numbers with these names, of EXTRAS, for each row, in float64 (float32 on MPS).

    Args:
        logits: shape (..., C). Where autograd follows, only they are kept for backward.
        names: some of EXTRAS.
        temperature: of the tempered loss.
    """
    return recompute_in_backward(partial(_numbers, names=names, temperature=temperature))(logits)


def _numbers(logits: Tensor, names: tuple[str, ...], temperature: float | Tensor) -> tuple[Tensor, ...]:
    prediction, top, below = find_top(logits)
    is_top = torch.arange(logits.shape[-1], device=logits.device) == prediction
    rivals = below.masked_fill(is_top, -torch.inf)
    terms = {}
    if "log_odds" in names or "gen" in names:
        terms["log_odds"] = -_log_rest(rivals)
    if "tempered_loss" in names:
        terms["tempered_loss"] = to_wide(torch.sigmoid(rivals / temperature).sum(-1)) / (rivals.shape[-1] - 1)
    if "top_margin" in names:
        # The top itself is among the largest, with a distance of 0.
        terms["top_margin"] = -to_wide(_largest(below, nearest_rivals(below.shape[-1]) + 1).sum(-1))
    if "gen" in names:
        terms["gen"] = _generalized_entropy(rivals, -terms["log_odds"])
    undefined = to_wide((top - top).detach().squeeze(-1))  # NaN where the top is NaN or infinite
    return tuple(terms[name] + undefined for name in names)


def _log_rest(rivals: Tensor) -> Tensor:
    """The log of R of each row, relative to the second largest logit; -inf where R is 0."""
    second = rivals.detach().amax(-1, keepdim=True).clamp_min(torch.finfo(rivals.dtype).min)
    total = (rivals - second).exp().sum(-1)
    nothing = total == 0.0
    log_total = to_wide(torch.where(nothing, 1.0, total)).log()  # not the log of 0, whose gradient would be NaN
    return (to_wide(second.squeeze(-1)) + log_total).masked_fill(nothing, -torch.inf)


def _generalized_entropy(rivals: Tensor, rest: Tensor) -> Tensor:
    """The sum of (p (1 - p))^0.1 over the 100 largest probabilities; `rest` is log R, and `rivals` is -inf at the top.

    Everything is in logarithms. For the top, p = 1 / (1 + R) and 1 - p = R / (1 + R): no digits are lost.
    """
    log_top = -torch.log1p(rest.exp())  # R is at most C - 1; onnxruntime has no softplus in float64
    # The top itself, at -inf, adds nothing: all classes may stand for all rivals.
    nearest = _largest(rivals, cast(int, torch.sym_min(LARGEST, rivals.shape[-1])) - 1, spare=1)
    log_p = nearest.clamp_min(-1e30) + log_top.to(rivals.dtype).unsqueeze(-1)
    each = (EXPONENT * (log_p + torch.log1p(-log_p.exp()))).exp()
    return to_wide(each.sum(-1)) + (EXPONENT * (rest + 2.0 * log_top)).exp()


def _largest(x: Tensor, number: int, *, spare: int = 0) -> Tensor:
    """The largest `number` entries of each row, in any order, and up to `spare` others if they are all then."""
    # A compiler does not ask whether they are all, because it may not know the number of classes.
    if not torch.compiler.is_compiling() and number + spare >= x.shape[-1]:
        return x
    return x.topk(number, -1, sorted=False).values
