"""The tally of a batch in torch's operations: the reference for the operator `tally` of the kernels."""

import torch
from torch import Tensor

from .coins import Coins
from .dtypes import constant, wide_dtype
from .schema import ALL_SUMS, GAP_BINS, GAP_EDGES, BinCounts, BinSums, Counts, LabelledSums, Labels, Sums, Tally


def empty_tally(bins: int = 15, device: torch.device | str | None = None, *, like: Tensor | None = None) -> Tally:
    """The tally of no samples, on `device`, or on the device of `like`; inside vmap it has the batch axis of `like`."""
    like = torch.empty(0, device=device) if like is None else like
    real = wide_dtype(like.device)

    def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return like.new_zeros(shape, dtype=dtype)

    bin_counts, bin_sums = zeros(len(BinCounts._fields), bins), zeros(len(BinSums._fields), bins, dtype=real)
    return Tally(zeros(len(Counts._fields)), zeros(len(ALL_SUMS), dtype=real), zeros(GAP_BINS), bin_counts, bin_sums)


def add_samples(
    total: Tally, coins: Coins, log_p_value: Tensor | None, labels: Labels, num_classes: int, alpha: float
) -> None:
    """Add samples to a tally, in place. It uses few operations, because each is a launch on a GPU.

    Args:
        total: the tally.
        coins: those of each sample.
        log_p_value: of the expected wins; None adds nothing to what is about p-values.
        labels: class indices, how far the target's logit is below the top, and which samples count; see `Labels`.
        num_classes: C.
        alpha: the level of `rejected`.
    """
    target, distance, counted = (x if x is None else flat(x) for x in labels)
    numbers = torch.stack([flat(x) for x in (*coins[1:5], distance) if x is not None])
    joint = numbers[:4].sum(0)  # without the distance, which can be infinite
    valid = joint - joint == 0.0  # False if one of the numbers is NaN or infinite
    if counted is not None:
        valid = counted & valid
    left_out = ~valid
    invalid = left_out if counted is None else counted ^ valid
    # Rows that do not count become sure predictions: all their numbers are finite, and their weight is 0.
    odds, loss, concentration, free_gap, *below = numbers.masked_fill_(left_out, 0.0)
    against = 1.0 + odds
    confidence, dominance, others = against.reciprocal(), 1.0 - loss, odds / against
    nothing = constant((0.0,), odds).expand_as(odds)
    labelled = correct = wrong = rejected = bad_targets = nothing
    p_value = odds  # without a weight
    if target is not None and distance is not None:
        labelled, correct = valid & is_class(target, num_classes), valid & (flat(coins.prediction) == target)
        wrong, bad_targets = labelled ^ correct, valid ^ labelled
    if log_p_value is not None:
        p_value = flat(log_p_value).exp().masked_fill(left_out, 1.0)
        rejected = valid & (p_value <= alpha)
    which = torch.stack(Counts(valid, invalid, rejected, labelled, correct, bad_targets)).long()
    total.counts.add_(which.sum(1))

    gap = (others - loss).clamp_min_(0.0)
    rivals = num_classes - 1.0
    forced = others / (odds + rivals) * (rivals - 1.0)
    both = torch.stack([confidence, dominance])
    brier, brier_dominance = torch.add(both, correct, alpha=-1).square_().unbind()
    sums = Sums(confidence, dominance, gap, gap, forced, free_gap, concentration, p_value)
    of_labelled = LabelledSums(log_loss(odds, below[0] if below else odds), brier, brier_dominance, gap, gap)
    in_bins = BinSums(confidence, gap, confidence, dominance)
    # The weight of each sum. The square of the gap is the gap with the weight gap, which is 0 if a row does not count.
    weights = [valid, valid, valid, gap, valid, valid, valid, nothing if log_p_value is None else valid]
    weights += [labelled, labelled, labelled]
    weights += [correct, wrong, valid, valid, labelled, labelled]
    weighted = torch.stack([*sums, *of_labelled, *in_bins]).mul_(torch.stack(weights))
    of_all, of_bins = weighted.split([len(total.sums), len(in_bins)])
    total.sums.add_(of_all.sum(1))

    by_confidence, by_dominance = equal_bin(both, total.bin_sums.shape[1], has_nan=False).unbind()
    bins = torch.stack([by_confidence] * 3 + [by_dominance] * 2)  # one for each mask
    counts = Counts(*which)
    masks = BinCounts(counts.samples, *(counts.labelled, counts.correct) * 2)
    total.bin_counts.scatter_add_(1, bins, torch.stack(masks))
    total.bin_sums.scatter_add_(1, bins[:4], of_bins)
    total.gap_histogram.scatter_add_(0, torch.bucketize(gap, constant(GAP_EDGES, gap), right=True), counts.samples)


def flat(x: Tensor) -> Tensor:
    """`x` with a single axis."""
    return x if x.ndim == 1 else x.reshape(-1)


def is_class(target: Tensor, num_classes: int) -> Tensor:
    """Which targets are a class, from 0 to `num_classes` - 1."""
    return target == target.clamp(0, num_classes - 1)


def log_loss(odds: Tensor, distance: Tensor) -> Tensor:
    """The negative log-likelihood of the target: log(1 + R) plus the distance of its logit below the top."""
    return torch.log1p(odds) + distance


def equal_bin(score: Tensor, bins: int, *, has_nan: bool = True) -> Tensor:
    """The bin of each score in [0, 1], for bins of equal width. They are closed on the right: 1 is in the last bin.

    NaN is put into bin 0. With `has_nan=False` there must be none, which would become an index outside of the bins.
    """
    number = (score * bins).ceil() - 1.0
    return (number.nan_to_num(0.0) if has_nan else number).clamp(0, bins - 1).long()
