"""The tally of a batch by torch's operations, the reference for the kernels; `tallies.py` has the layout."""

import torch
from torch import Tensor

from ..core.coins import Coins
from .bounds import forced_gap
from .evidence import Evidence, flat, is_class, log_loss, settle
from .histogram import as_place, equal_bin
from .paths import log_tail
from .tallies import (
    BINS_PER_DECADE,
    GAP_BINS,
    LOWEST_DECADE,
    BinCounts,
    BinSums,
    Counts,
    LabelledSums,
    Sums,
    Tally,
)


def add_by_formula(total: Tally, evidence: Evidence, alpha: float) -> None:
    """Add the tally of a batch to `total`, in place. It uses few operations, because each is a launch on a GPU."""
    coins, valid, invalid = settle(evidence)
    against = 1.0 + coins.odds
    confidence, dominance, others = against.reciprocal(), coins.dominance, coins.odds / against
    p_value = log_tail(torch.round(float(evidence.trials) * dominance), evidence.trials, coins.odds).exp()
    labelled, correct, distance = _labels(evidence, coins, valid, invalid)
    bad_targets = labelled if labelled is correct else valid > labelled  # without targets, both are the same tensor
    rejected = p_value <= alpha if alpha < 1.0 else valid  # a row that does not count has the p-value 1
    counts = Counts(valid, invalid, rejected, labelled, correct, bad_targets)
    total.counts.add_(torch.stack(counts).sum(1))

    gap = (others - coins.loss).clamp_min_(0.0)
    rivals = evidence.num_classes - 1.0
    forced = others / (coins.odds + rivals) * (rivals - 1.0)
    free = coins.free_gap.clamp_min(0.0)
    both = torch.stack([confidence, dominance])
    brier, brier_dominance = torch.add(both, correct, alpha=-1).square_().unbind()
    sums = Sums(confidence, dominance, gap, gap, forced, free, coins.concentration, p_value)
    of_labelled = LabelledSums(log_loss(coins.odds, distance), brier, brier_dominance, gap, gap)
    in_bins = BinSums(confidence, gap, confidence, dominance)
    # The weight of each sum. The square of the gap is the gap with the weight gap, which is 0 if a row does not count.
    weights = [valid, valid, valid, gap, valid, valid, valid, valid, labelled, labelled, labelled]
    weights += [correct, labelled > correct, valid, valid, labelled, labelled]
    weighted = torch.stack([*sums, *of_labelled, *in_bins]).mul_(torch.stack(weights))
    of_all, of_bins = weighted.split([len(total.sums), len(in_bins)])
    total.sums.add_(of_all.sum(1))

    by_confidence, by_dominance = equal_bin(both, total.bin_sums.shape[1], has_nan=False).unbind()
    masks = BinCounts(valid, labelled, correct, labelled_by_dominance=labelled, correct_by_dominance=correct)
    places = torch.stack([by_confidence] * 3 + [by_dominance] * 2)  # one per mask; the first four are for the sums, too
    total.bin_counts.scatter_add_(1, places, torch.stack(masks).long())
    total.bin_sums.scatter_add_(1, places[: len(in_bins)], of_bins)
    total.gap_histogram.scatter_add_(0, _gap_bin(gap), valid.long())


def _labels(evidence: Evidence, coins: Coins, valid: Tensor, invalid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which samples have a target that is a class, which are right, and each target's distance below the top."""
    if evidence.target is None or evidence.distance is None:
        none = torch.zeros_like(valid)
        return none, none, torch.zeros_like(coins.odds)
    target, distance = flat(evidence.target), flat(evidence.distance)
    labelled = valid & is_class(target, evidence.num_classes)
    # The distance can be infinite or NaN for a sample that does not count. It is 0 for a target that is no class.
    unused = invalid if evidence.counted is None else ~valid
    return labelled, valid & (coins.prediction == target), distance.masked_fill(unused, 0.0)


def add_gaps_by_formula(states: tuple[Tensor, Tensor, Tensor], evidence: Evidence, part: str) -> None:
    """Add the `gap_tally` of a batch to `states`, in place."""
    (coins, valid, invalid), (sums, samples, bad) = settle(evidence), states
    if part == "total":
        gap = tallied_gap(coins)
    elif part == "forced":
        gap = forced_gap(coins.odds, evidence.num_classes)
    else:
        gap = coins.free_gap.clamp_min(0.0)
    bad.add_(invalid.sum())
    if len(sums) == 1:
        sums.add_((valid * gap).sum())
        samples.add_(valid.sum())
    else:
        sums.scatter_add_(0, coins.prediction, valid * gap)
        samples.scatter_add_(0, coins.prediction, valid.long())


def tallied_gap(coins: Coins) -> Tensor:
    """The gap, or 0 if it is negative: float32 odds and loss of two classes are rounded separately."""
    return coins.gap.clamp_min(0.0)


def _gap_bin(gap: Tensor) -> Tensor:
    place = (gap.log10() - LOWEST_DECADE) * BINS_PER_DECADE + 1
    return as_place(place, GAP_BINS, has_nan=False)
