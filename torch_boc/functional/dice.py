"""Bag of Dice, the paper's open question: the predicted class against several rivals at once."""

import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.chunking import recompute_in_backward
from ..core.dtypes import to_wide
from .checks import classes_last

# The integral is a sum over nodes t = exp(x - exp(-x)), evenly spaced in x. Beyond these x, exp(-t) and dt are below
# 1e-15. Many rivals make the integrand steeper, so that each doubling of their number needs a few nodes more.
FIRST, LAST = -3.5, 3.85
NODES, NODES_PER_DOUBLING = 48, 5


def bag_of_dice(logits: Tensor, faces: int | Sequence[int], *, dim: int = -1) -> Tensor:
    """The chance that the predicted class loses against m rivals at once, drawn uniformly with replacement.

    A coin pits the top class against one rival; a die with m faces pits it against the sum of m rivals:

        loss_m = 1 - E 1 / (1 + u_1 + ... + u_m) = integral over t > 0 of exp(-t) (1 - phi(t)^m)
        phi(t) = mean_j exp(-u_j t), with u_j = exp(z_j - z_top) over the C - 1 rivals

    Nothing cancels in it, so that tiny losses are exact, too. loss_1 is `bag_of_coins(logits).loss`. With R the odds,
    loss_m is at most m R / (C - 1 + m R), which it reaches if all rivals are equal.

    Args:
        logits: shape (..., C), on any device and of any floating dtype. A row with NaN or +inf gives NaN.
        faces: the number m of rivals, or several numbers, which are computed in one pass.
        dim: the class axis; by default the last.

    Returns:
        float64 (float32 on MPS), with a relative error of at most 1e-10. The shape is that of `logits` without `dim`;
        for several `faces` there is one more axis at the end, with a number for each.

    >>> bag_of_dice(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), [1, 3])
    tensor([[0.1452, 0.3415]], dtype=torch.float64)
    """
    rows = classes_last(logits, dim)
    counts = [operator.index(count) for count in (faces if isinstance(faces, Sequence) else [faces])]
    if not counts or min(counts) < 1:
        raise ValueError(f"expected faces as a positive integer or several, got {faces!r}")
    nodes = NODES + NODES_PER_DOUBLING * max(counts).bit_length()

    def losses(z: Tensor) -> tuple[Tensor, ...]:
        wide = to_wide(z)
        top, prediction = wide.max(-1, keepdim=True)
        is_top = torch.arange(z.shape[-1], device=z.device) == prediction
        rivals = (wide - top).masked_fill(is_top, -torch.inf).exp()
        x = torch.linspace(FIRST, LAST, nodes, dtype=wide.dtype, device=z.device)
        time = (x - (-x).exp()).exp()
        weight = (LAST - FIRST) / (nodes - 1) * time * (1.0 + (-x).exp()) * (-time).exp()
        survived = torch.log1p(torch.expm1(-rivals.unsqueeze(-1) * time).sum(-2) / (z.shape[-1] - 1))
        undefined = (top - top).detach().squeeze(-1)  # NaN where the top is NaN or infinite
        return tuple(-(weight * torch.expm1(count * survived)).sum(-1) + undefined for count in counts)

    results = recompute_in_backward(losses, weight=nodes)(rows)
    return torch.stack(results, -1) if isinstance(faces, Sequence) else results[0]
