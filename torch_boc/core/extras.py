"""Numbers of each row that only some scores need, beside the sums of `rows.py`.

With b_j = z_j - z_top over the rivals j, R = sum_j exp(b_j), and p_j the softmax probability of class j:

    log_odds       -log R = log(p / (1 - p)) of the top class, which does not underflow as R does
    tempered_loss  sum_j sigmoid(b_j / T), with T = 4 unless another T is given
    top_margin     minus the sum of b_j over the N nearest rivals
    gen            sum of (p_j (1 - p_j))^0.1 over the 100 largest p_j

They are written in torch's operations, which autograd differentiates.
"""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .blocks import blockwise
from .precision import is_plain, widen
from .top import find_top

EXTRAS = ("log_odds", "tempered_loss", "top_margin", "gen")
TEMPERATURE = 4.0
EXPONENT = 0.1
LARGEST = 100


def nearest_rivals(num_classes: int) -> int:
    """How many rivals N the top margin is over: half of the classes but at most 10, or a fifth of many classes.

    The authors of LogitGap publish these numbers: 5 rivals for 10 classes, 10 for 20, and 20 for 100.
    """
    return max(1, min(num_classes // 2, 10), num_classes // 5)


def extras_by_blocks(
    logits: Tensor, names: tuple[str, ...], *, log_odds: Tensor | None = None, temperature: float = TEMPERATURE
) -> tuple[Tensor, ...]:
    """The numbers with these names, of EXTRAS, for each row, in float64 (float32 on MPS).

    Where autograd follows, only the logits are kept for backward, and each piece is computed again there.

    Args:
        logits: shape (..., C).
        names: some of EXTRAS.
        log_odds: the log odds of each row if they are known; they get no gradient.
        temperature: of the tempered loss.
    """

    def numbers(z: Tensor, *known: Tensor) -> tuple[Tensor, ...]:
        return _numbers(z, names, temperature, *(x.squeeze(-1) for x in known))

    def numbers_again(*tensors: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = checkpoint(numbers, *tensors, use_reentrant=False, preserve_rng_state=False)
        return found

    given = () if log_odds is None else (log_odds.unsqueeze(-1),)
    if is_plain(logits):
        return blockwise(numbers, logits, *given)
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or not logits.requires_grad:
        return numbers(logits, *given)
    return blockwise(numbers_again, logits, *given)


def _numbers(
    logits: Tensor, names: tuple[str, ...], temperature: float, known: Tensor | None = None
) -> tuple[Tensor, ...]:
    prediction, top, below = find_top(logits)
    is_top = torch.arange(logits.shape[-1], device=logits.device) == prediction
    rivals = below.masked_fill(is_top, -torch.inf)
    found = {}
    if "log_odds" in names or "gen" in names:
        found["log_odds"] = -log_rest(rivals) if known is None else known
    if "tempered_loss" in names:
        found["tempered_loss"] = tempered_loss(rivals, temperature)
    if "top_margin" in names:
        found["top_margin"] = top_margin(below, nearest_rivals(below.shape[-1]))
    if "gen" in names:
        found["gen"] = generalized_entropy(rivals, -found["log_odds"])
    undefined = widen((top - top).detach().squeeze(-1))  # NaN where the top is NaN or infinite
    return tuple(found[name] + undefined for name in names)


def log_rest(rivals: Tensor) -> Tensor:
    """log R of each row, relative to the second largest logit; -inf where R is 0."""
    second = rivals.detach().amax(-1, keepdim=True).clamp_min(torch.finfo(rivals.dtype).min)
    total = (rivals - second).exp().sum(-1)
    nothing = total == 0.0
    log_total = widen(torch.where(nothing, 1.0, total)).log()  # not the log of 0, whose gradient would be NaN
    return (widen(second.squeeze(-1)) + log_total).masked_fill(nothing, -torch.inf)


def tempered_loss(rivals: Tensor, temperature: float) -> Tensor:
    """The sum over the rivals of the chance that the top loses a coin flip at this temperature."""
    return widen(torch.sigmoid(rivals / temperature).sum(-1))


def top_margin(below: Tensor, number: int) -> Tensor:
    """The sum of the distances of the nearest rivals. The top itself is among `below`, with a distance of 0."""
    everyone = number + 1 >= below.shape[-1]
    return -widen((below if everyone else below.topk(number + 1, -1, sorted=False).values).sum(-1))


def generalized_entropy(rivals: Tensor, rest: Tensor) -> Tensor:
    """The sum of (p (1 - p))^0.1 over the 100 largest probabilities; `rest` is log R, and `rivals` is -inf at the top.

    Everything is in logarithms. For the top, p = 1 / (1 + R) and 1 - p = R / (1 + R), so that no digits are lost.
    """
    log_top = -torch.nn.functional.softplus(rest)
    nearest = rivals if rivals.shape[-1] <= LARGEST else rivals.topk(LARGEST - 1, -1, sorted=False).values
    log_p = nearest.clamp_min(-1e30) + log_top.to(rivals.dtype).unsqueeze(-1)
    each = (EXPONENT * (log_p + torch.log1p(-log_p.exp()))).exp()
    return widen(each.sum(-1)) + (EXPONENT * (rest + 2.0 * log_top)).exp()
