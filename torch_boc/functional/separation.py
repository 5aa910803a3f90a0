"""How well a score separates in-distribution samples (the positive class) from out-of-distribution ones."""

import math

import torch
from torch import Tensor

from .precision import widen

# The scale of the binned mode: distances from 1e-15 to 1e5.
LOWEST_DECADE, HIGHEST_DECADE = -15, 5


def auroc(id_scores: Tensor, ood_scores: Tensor) -> Tensor:
    """The chance that an in-distribution sample scores higher than an out-of-distribution one, ties counting half.

    Args:
        id_scores: (N,), higher = more in-distribution.
        ood_scores: (M,).

    Returns:
        A scalar in float64 (float32 on MPS); NaN if either is empty or has NaN.

    >>> auroc(torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0]))
    tensor(0.8750, dtype=torch.float64)
    """
    positive, negative = widen(id_scores).contiguous(), widen(ood_scores).sort().values
    below = torch.searchsorted(negative, positive)
    up_to = torch.searchsorted(negative, positive, right=True)
    share = widen(below + up_to).mean() / (2 * negative.numel() or math.nan)
    return torch.where(positive.isnan().any() | negative.isnan().any(), math.nan, share)


def fpr_at_tpr(id_scores: Tensor, ood_scores: Tensor, tpr: float = 0.95) -> Tensor:
    """The share of out-of-distribution samples above the threshold that keeps a share `tpr` of the in-distribution.

    Args:
        id_scores: (N,), higher = more in-distribution.
        ood_scores: (M,).
        tpr: the true positive rate to keep, in (0, 1].

    Returns:
        A scalar in float64 (float32 on MPS); NaN if either is empty.

    >>> fpr_at_tpr(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0.0, 1.5, 2.5]), tpr=0.75)
    tensor(0.3333, dtype=torch.float64)
    """
    positive, negative = widen(id_scores), widen(ood_scores)
    if positive.numel() == 0 or negative.numel() == 0:
        return positive.new_full((), math.nan)
    kept = max(1, math.ceil(tpr * positive.numel() - 1e-9))
    threshold = positive.sort(descending=True).values[kept - 1]
    return widen(negative >= threshold).mean()


def score_bin(scores: Tensor, bins: int, ceiling: float = 0.0) -> Tensor:
    """The place of each score among `bins` bins that are logarithmic in its distance from `ceiling`, on both sides.

    Args:
        scores: any shape; NaN has the place of `ceiling`.
        bins: an even number.
        ceiling: where the score saturates, so that scores close to it are told apart.

    Returns:
        int64 in [0, bins), never falling where the score rises.
    """
    half = bins // 2
    distance = scores.nan_to_num(ceiling, math.inf, -math.inf) - ceiling
    decades = distance.abs().log10().clamp(LOWEST_DECADE, HIGHEST_DECADE) - LOWEST_DECADE
    steps = (decades * (half / (HIGHEST_DECADE - LOWEST_DECADE))).long().clamp(0, half - 1)
    return torch.where(distance < 0, half - 1 - steps, half + steps)


def bin_centres(bins: int, ceiling: float = 0.0) -> Tensor:
    """The middle of each bin of `score_bin`, on its logarithmic scale."""
    half = bins // 2
    steps = (torch.arange(half, dtype=torch.float64) + 0.5) / half
    positive = 10 ** (LOWEST_DECADE + (HIGHEST_DECADE - LOWEST_DECADE) * steps)
    return torch.cat([-positive.flip(0), positive]) + ceiling


def binned_auroc(id_histogram: Tensor, ood_histogram: Tensor) -> tuple[Tensor, Tensor]:
    """`auroc` from histograms, and how far it can be off: half the chance that both samples fall in one bin."""
    positive, negative = _shares(id_histogram), _shares(ood_histogram)
    below = negative.cumsum(0) - negative
    tie = (positive * negative).sum() / 2
    return (positive * below).sum() + tie, tie


def binned_fpr_at_tpr(id_histogram: Tensor, ood_histogram: Tensor, tpr: float = 0.95) -> tuple[Tensor, Tensor]:
    """`fpr_at_tpr` from histograms, at most too high by the second value: the share in the threshold's own bin."""
    total = id_histogram.sum()
    kept = id_histogram.flip(0).cumsum(0).flip(0)  # in this bin or above
    enough = widen(kept) >= tpr * widen(total) - 1e-9
    place = (enough.sum() - 1).clamp_min(0).reshape(1)  # the last bin from which enough are kept
    negative = _shares(ood_histogram)
    above = negative.flip(0).cumsum(0).flip(0)
    undefined = widen(total) / widen(total) - 1  # NaN without in-distribution samples
    return above[place].squeeze(0) + undefined, negative[place].squeeze(0) + undefined


def _shares(histogram: Tensor) -> Tensor:
    wide = widen(histogram)
    return wide / wide.sum()
