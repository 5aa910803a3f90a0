"""Count samples in bins: bins of equal width for probabilities, and bins that cover all real numbers for scores."""

import torch
from torch import Tensor

from ..kernels.dispatch import count as native_count

MAGNITUDE = 0x7FFFFFFF  # all bits of a float32 except its sign


def count(place: Tensor, weight: Tensor, bins: int) -> Tensor:
    """Add up `weight` in bins along the last axis. `place` is the bin of each weight; booleans are summed in int64."""
    weight = weight.long() if weight.dtype == torch.bool else weight
    return weight.new_zeros(*weight.shape[:-1], bins).scatter_add(-1, place, weight)


def float_bin(scores: Tensor, bins: int) -> Tensor:
    """The bin of each score, among `bins` bins that cover all real numbers.

    The bits of a float, read as an integer, have the same order as the numbers, and the leading bits are the bin. A bin
    holds the float32 numbers with the same sign, the same exponent (8 bits) and the same first bits of the fraction.
    With 2**18 bins, these are 9 bits of the fraction: the numbers in a bin differ by less than 1/512 of their value.

    Args:
        scores: any shape; NaN is put into any of the bins.
        bins: a power of two, from 2 to 2**31.

    Returns:
        int64 in [0, bins). A higher score never has a lower bin.
    """
    pattern = (scores.to(torch.float32) + 0.0).view(torch.int32)  # 0.0 is added because -0.0 and 0.0 differ in bits
    ordered = pattern ^ ((pattern >> 31) & MAGNITUDE)
    return (ordered >> 33 - bins.bit_length()).long() + bins // 2


def bin_centres(bins: int) -> Tensor:
    """The middle of each bin of `score_bin`, counted in bits; NaN for bins that contain no number."""
    step = 33 - bins.bit_length()  # the bits of a float32 that do not matter for its bin
    ordered = (torch.arange(bins) - bins // 2 << step) + (1 << step >> 1)
    pattern = torch.where(ordered < 0, ordered ^ MAGNITUDE, ordered)
    return pattern.to(torch.int32).view(torch.float32).double()


def score_histograms(scores: Tensor, ood: Tensor, bins: int) -> Tensor:
    """Count the in-distribution and the out-of-distribution samples in each bin of each score.

    Args:
        scores: (S, N); a sample with a NaN score is not counted.
        ood: (N,) booleans, true for out-of-distribution.
        bins: as for `score_bin`.

    Returns:
        int64 of shape (2, S, bins), in-distribution first.
    """
    total = scores.new_zeros(2, len(scores), bins, dtype=torch.int64)
    count_scores(total, total.new_zeros(()), scores, ood)
    return total


def count_scores(
    histograms: Tensor, invalid: Tensor, scores: Tensor, ood: Tensor, counted: Tensor | None = None
) -> None:
    """Add the `score_histograms` of a batch, or of the samples that count, in place, and the number with a NaN."""
    if native_count(scores, ood, counted, histograms, invalid):
        return
    _, number, bins = histograms.shape
    defined = ~scores.isnan().any(0)
    valid = defined if counted is None else defined & counted
    invalid.add_((~defined if counted is None else counted & ~defined).sum())
    # One axis holds the bins of all scores of the in-distribution samples, then those of the others.
    first = torch.arange(0, number * bins, bins, device=scores.device).unsqueeze(1)
    place = float_bin(scores, bins).add_(first).add_(ood * (number * bins))
    histograms.view(-1).scatter_add_(0, place.reshape(-1), valid.long().expand_as(place).reshape(-1))
