"""How well a score separates in-distribution samples (the positive class) from out-of-distribution ones."""

import math

import torch
from torch import Tensor

from ..core.dtypes import to_wide
from .score_bins import EVERY_EXPONENT, num_bins, score_bin


def auroc(id_scores: Tensor, ood_scores: Tensor) -> Tensor:
    """The chance that an in-distribution sample scores higher than an out-of-distribution sample; a tie counts half.

    Args:
        id_scores: (N,), higher = more in-distribution.
        ood_scores: (M,).

    Returns:
        A scalar in float64 (float32 on MPS); NaN if either is empty or has NaN.

    >>> auroc(torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0]))
    tensor(0.8750, dtype=torch.float64)
    """
    positive, negative = to_wide(id_scores).contiguous(), to_wide(ood_scores).sort().values
    # The mean is that of integers, which is exact in any order.
    twice_below = torch.searchsorted(negative, positive) + torch.searchsorted(negative, positive, right=True)
    share = to_wide(twice_below).mean() / (2 * negative.numel() or math.nan)
    return torch.where(positive.isnan().any() | negative.isnan().any(), math.nan, share)


def survival(rising: Tensor, thresholds: Tensor, *, weights: Tensor | None = None) -> Tensor:
    """The share of a set at or above each threshold: the true or the false positive rate, depending on the set.

    Args:
        rising: (N,), scores in rising order.
        thresholds: (T,).
        weights: (N,), the weight of each score; by default all are equal.

    Returns:
        (T,) in float64 (float32 on MPS).

    >>> survival(torch.tensor([1.0, 2.0, 2.0, 3.0]), torch.tensor([3.0, 2.0]))
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    number = torch.searchsorted(rising, thresholds)
    if weights is None:
        return 1 - to_wide(number) / rising.numel()
    below = torch.cat([to_wide(weights).new_zeros(1), to_wide(weights).cumsum(0)])
    return 1 - below[number] / below[-1]


def fpr_at_tpr(id_scores: Tensor, ood_scores: Tensor, tpr: float = 0.95) -> Tensor:
    """The false positive rate at the threshold that a share `tpr` of the in-distribution samples reaches.

    Args:
        id_scores: (N,), higher = more in-distribution.
        ood_scores: (M,).
        tpr: the true positive rate to keep, in (0, 1].

    Returns:
        A scalar in float64 (float32 on MPS); NaN if either is empty or has NaN.

    >>> fpr_at_tpr(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0.0, 1.5, 2.5]), tpr=0.75)
    tensor(0.3333, dtype=torch.float64)
    """
    if not 0 < tpr <= 1:
        raise ValueError(f"expected tpr in (0, 1], got {tpr}")
    positive, negative = to_wide(id_scores), to_wide(ood_scores)
    if positive.numel() == 0 or negative.numel() == 0:
        return positive.new_full((), math.nan)
    kept = max(1, math.ceil(tpr * positive.numel() - 1e-9))
    threshold = positive.sort(descending=True).values[kept - 1]
    share = to_wide(negative >= threshold).mean()
    return torch.where(positive.isnan().any() | negative.isnan().any(), math.nan, share)


def aupr(positive_scores: Tensor, negative_scores: Tensor) -> Tensor:
    """The area under the precision-recall curve by the trapezoidal rule, as in torchmetrics and pytorch-ood.

    AUPR-in is `aupr(id_scores, ood_scores)`, and AUPR-out `aupr(-ood_scores, -id_scores)`.

    Args:
        positive_scores: (N,), higher = more likely positive.
        negative_scores: (M,).

    Returns:
        A scalar in float64 (float32 on MPS); NaN if either is empty or has NaN.

    >>> aupr(torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0]))
    tensor(0.9167, dtype=torch.float64)
    """
    scores = torch.cat([to_wide(positive_scores), to_wide(negative_scores)])
    positive = torch.arange(len(scores), device=scores.device) < len(positive_scores)
    values, index = scores.unique(return_inverse=True)
    area, _ = binned_aupr(*(torch.bincount(index[side], minlength=len(values)) for side in (positive, ~positive)))
    return torch.where(scores.isnan().any(), math.nan, area)


def binned_auroc(id_histogram: Tensor, ood_histogram: Tensor) -> tuple[Tensor, Tensor]:
    """`auroc` from histograms, and its largest error: half the chance that the two samples are in the same bin.

    Args:
        id_histogram: (..., bins), how many in-distribution samples are in each bin, in rising order of the score.
        ood_histogram: (..., bins), the same for the out-of-distribution samples.
    """
    below = to_wide(ood_histogram.cumsum(-1) - ood_histogram)
    positive, negative = to_wide(id_histogram), to_wide(ood_histogram)
    pairs = positive.sum(-1) * negative.sum(-1)
    tie = (positive * negative).sum(-1) / 2
    return ((positive * below).sum(-1) + tie) / pairs, tie / pairs


def binned_fpr_at_tpr(id_histogram: Tensor, ood_histogram: Tensor, tpr: float = 0.95) -> tuple[Tensor, Tensor]:
    """`fpr_at_tpr` from histograms, and by how much it can be too high: the share in the bin of the threshold."""
    positive, negative = to_wide(id_histogram), to_wide(ood_histogram)
    # Those in this bin or above, as sums of integers.
    kept, above = (to_wide(x.flip(0).cumsum(0).flip(0)) for x in (id_histogram, ood_histogram))
    lowest = ((kept >= tpr * positive.sum() - 1e-9).sum() - 1).clamp_min(0)  # the highest bin that keeps enough samples
    total = negative.sum() * (positive.sum() / positive.sum())  # NaN without in-distribution samples
    return above.take(lowest) / total, negative.take(lowest) / total


def binned_aupr(positive_histogram: Tensor, negative_histogram: Tensor) -> tuple[Tensor, Tensor]:
    """`aupr` from histograms in rising order of the score, and its largest error, whatever the order within a bin."""
    falling = positive_histogram.flip(-1), negative_histogram.flip(-1)
    true, false = (to_wide(x.cumsum(-1)) for x in falling)  # sums of integers
    positive, negative = map(to_wide, falling)
    some = negative.sum(-1) / negative.sum(-1)  # NaN without negative samples

    def precision(right: Tensor, wrong: Tensor) -> Tensor:
        return torch.where(right + wrong > 0, right / (right + wrong), 1.0)

    earlier, earlier_false = true - positive, false - negative
    reached = (precision(true, false) + precision(earlier, earlier_false)) / 2
    spread = precision(true, earlier_false) - precision(earlier, false)
    area, error = ((positive * x).sum(-1) / positive.sum(-1) * some for x in (reached, spread))
    return area, error


def count_scores(
    histograms: Tensor, invalid: Tensor, scores: Tensor, ood: Tensor, counted: Tensor | None = None
) -> None:
    """Add a batch to the histograms of each score, in place, and the number of samples with a NaN to `invalid`.

    Args:
        histograms: (2, S, bins) in int64, in-distribution first. The bins are a power of two; with 2**18 of them, the
            scores in a bin differ by less than 1/512 of their value.
        invalid: a scalar in int64.
        scores: (S, N).
        ood: (N,) booleans, true for out-of-distribution.
        counted: (N,) booleans, which samples count; by default all.
    """
    _, number, bins = histograms.shape
    defined = ~scores.isnan().any(0)
    valid = defined if counted is None else defined & counted
    invalid.add_((~defined if counted is None else counted & ~defined).sum())
    # One axis holds the bins of all scores of the in-distribution samples, then those of the others.
    first = torch.arange(0, number * bins, bins, device=scores.device).unsqueeze(1) + ood * (number * bins)
    index = score_bin(scores, bins / num_bins(1, EVERY_EXPONENT), EVERY_EXPONENT).add_(first)
    histograms.view(-1).scatter_add_(0, index.reshape(-1), valid.long().expand_as(index).reshape(-1))
