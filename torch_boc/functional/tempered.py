"""Coins at another temperature: the chance that the top class beats a rival if all logits are divided by T."""

import math

import torch
from torch import Tensor

from ..core.blocks import blockwise
from ..core.extras import extras_by_blocks
from ..core.precision import accumulator, is_plain, widen
from .checks import classes_last
from .evidence import gather

# Where the temperature is looked for: from 2^-6 to 2^10.
LEAST, MOST, STEPS = -6.0, 10.0, 26


def tempered_dominance(logits: Tensor, temperature: float | Tensor, *, dim: int = -1) -> Tensor:
    """The mean chance that the top class beats a rival at temperature T.

        q_T = mean_j sigmoid((z_top - z_j) / T)

    At T = 1 this is the dominance. For T to infinity it ranks the samples as the score `logit_gap`. The score
    `tempered_dominance` has T = 4.

    Args:
        logits: shape (..., C).
        temperature: T, above 0; a number, or a tensor with one number, whose value is not checked.
        dim: the class axis; by default the last.

    Returns:
        Shape (...), float64 (float32 on MPS). It is differentiable in the logits.

    >>> logits = torch.tensor([[8.0, 4.0, 0.0, -4.0]])
    >>> [round(tempered_dominance(logits, t).item(), 4) for t in (1.0, 4.0)]
    [0.9939, 0.8548]
    """
    check_temperature(temperature)
    return 1.0 - _loss(classes_last(logits, dim), temperature)


def choose_temperature(logits: Tensor, *, dominance: float = 0.9, dim: int = -1) -> Tensor:
    """The temperature at which the median dominance of in-distribution samples is 0.9.

    At T = 1 the coins of a confident network are almost sure to be won, and differ little between samples. At a large T
    they are nearly fair for all samples. The rule takes held-out in-distribution samples only: no
    out-of-distribution sample and no target is needed. `benchmarks/results/scores.md` compares it with other rules.

    Args:
        logits: shape (..., C), of held-out in-distribution samples. Rows with NaN or +inf do not count.
        dominance: the median to reach, between 0.5 and 1.
        dim: the class axis; by default the last.

    Returns:
        A tensor with one number in float64 (float32 on MPS), between 2^-6 and 2^10, to one part in a million. It has no
        gradient.

    >>> logits = torch.tensor([[8.0, 4.0, 0.0, -4.0], [9.0, 0.0, 0.0, 0.0], [2.0, 1.0, 0.0, 0.0]])
    >>> round(choose_temperature(logits).item(), 3)
    3.056
    """
    if not 0.5 < dominance < 1.0:
        raise ValueError(f"expected a dominance between 0.5 and 1, got {dominance}")
    rows = classes_last(logits.detach(), dim)
    if rows.shape[:-1].numel() == 0:
        raise ValueError(f"expected logits of at least one sample, got shape {tuple(logits.shape)}")
    low = widen(torch.full((), LEAST, device=rows.device))
    high = torch.full_like(low, MOST)
    for _ in range(STEPS):  # the dominance of every sample falls with the temperature
        middle = (low + high) / 2
        above = _loss(rows, middle.exp2()).nanmedian() < 1.0 - dominance
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return ((low + high) / 2).exp2()


def check_temperature(temperature: float | Tensor) -> None:
    """Raise unless the temperature is a number above 0, or a tensor with one number."""
    if isinstance(temperature, Tensor):
        if temperature.numel() != 1:
            raise ValueError(f"expected one temperature, got a tensor of shape {tuple(temperature.shape)}")
    elif not 0.0 < temperature < math.inf:
        raise ValueError(f"expected a temperature above 0, got {temperature}")


def _loss(rows: Tensor, temperature: float | Tensor) -> Tensor:
    """The mean chance that the top class loses a coin flip at this temperature."""
    if not is_plain(rows):
        return extras_by_blocks(rows, ("tempered_loss",), temperature=temperature)[1]
    return blockwise(lambda z: (gather(z.to(accumulator(z.dtype)) / temperature).coins.loss,), rows)[0]
