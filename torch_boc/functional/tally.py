"""Sums of fixed size over any number of samples, from which the whole picture of the probe is computed.

A tally of two batches is the sum of their tallies, so that it can be accumulated, and added up over processes.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..core.coins import Coins
from ..core.precision import widen
from .bounds import forced_gap
from .evidence import Evidence, is_class, log_loss, settle
from .trials import log_p_value

# The histogram of the gap: a first bin for all below 1e-12, then 50 bins to the decade up to 1.
LOWEST_DECADE = -12
BINS_PER_DECADE = 50
GAP_BINS = 1 - LOWEST_DECADE * BINS_PER_DECADE

COUNTS = ("samples", "invalid", "rejected", "labelled", "correct", "bad_targets")
SUMS = ("confidence", "dominance", "gap", "gap_square", "forced_gap", "free_gap", "concentration", "p_value")
LABELLED_SUMS = ("nll", "brier_confidence", "brier_dominance", "gap_correct", "gap_wrong")


class Tally(NamedTuple):
    """Counts in int64 and sums in float64 (float32 on MPS); b is the number of bins.

    Attributes:
        counts: (6,), in the order of `COUNTS`.
        sums: (13,), in the order of `SUMS` and `LABELLED_SUMS`.
        gap_histogram: (601,), how many gaps in each logarithmic bin.
        bin_counts: (5, b): samples, labelled and correct by confidence; labelled and correct by dominance.
        bin_sums: (4, b): confidence, gap and labelled confidence by confidence; labelled dominance by dominance.
    """

    counts: Tensor
    sums: Tensor
    gap_histogram: Tensor
    bin_counts: Tensor
    bin_sums: Tensor


def empty_tally(bins: int = 15, device: torch.device | str | None = None) -> Tally:
    """The tally of no samples."""
    real = widen(torch.zeros(0, device=device)).dtype

    def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    sums = zeros(len(SUMS) + len(LABELLED_SUMS), dtype=real)
    return Tally(zeros(len(COUNTS)), sums, zeros(GAP_BINS), zeros(5, bins), zeros(4, bins, dtype=real))


def tally(evidence: Evidence, *, bins: int = 15, alpha: float = 0.05) -> Tally:
    """The tally of a batch of any shape, without reading a value back.

    Samples that are not `counted` do not count at all; rows with NaN or +inf count as `invalid` and nowhere else; a
    target that is no class counts as one of `bad_targets`, and its sample as one without a target.
    """
    coins, valid, invalid = settle(evidence)
    p_value = log_p_value(coins, evidence.trials).exp()
    labelled = correct = unlabelled = torch.zeros_like(valid)
    distance = torch.zeros_like(coins.odds)
    if evidence.target is not None and evidence.distance is not None:
        target, distance = evidence.target.reshape(-1), evidence.distance.reshape(-1)
        labelled = valid & is_class(target, evidence.num_classes)
        correct, unlabelled = labelled & (coins.prediction == target), valid & ~labelled
    counts = (valid, invalid, valid & (p_value <= alpha), labelled, correct, unlabelled)
    view = _View(coins.confidence, coins.dominance, tallied_gap(coins))
    sums = _sums(coins, view, p_value, valid, evidence.num_classes)
    return Tally(
        torch.stack(counts).sum(1),
        torch.cat([sums, _labelled_sums(coins.odds, view, distance, labelled, correct)]),
        count(_gap_bin(view.gap), valid, GAP_BINS),
        *_by_bin(view, valid, labelled, correct, bins),
    )


class _View(NamedTuple):
    """What the sums look at, computed once."""

    confidence: Tensor
    dominance: Tensor
    gap: Tensor


def gap_tally(evidence: Evidence, *, part: str = "total", per_class: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of the gap (or of its forced or free part), how many samples it is of, and how many rows are invalid.

    With `per_class`, sum and number have shape (C,), by predicted class. Samples count as in `tally`.
    """
    (coins, valid, invalid), classes = settle(evidence), evidence.num_classes
    if part == "total":
        gap = tallied_gap(coins)
    elif part == "forced":
        gap = forced_gap(coins.odds, classes)
    else:
        gap = coins.free_gap.clamp_min(0.0)
    place = coins.prediction if per_class else torch.zeros_like(coins.prediction)
    size = classes if per_class else 1
    return count(place, valid * gap, size), count(place, valid, size), invalid.sum()


def tallied_gap(coins: Coins) -> Tensor:
    """The gap, or 0 where odds and loss in float32 give less, as columns of two classes: they are rounded apart."""
    return coins.gap.clamp_min(0.0)


def gap_edges() -> list[float]:
    """The edges of the histogram's bins, from 0 over 1e-12 to 1."""
    return [0.0] + [10 ** (LOWEST_DECADE + i / BINS_PER_DECADE) for i in range(GAP_BINS)]


def _sums(coins: Coins, view: _View, p_value: Tensor, valid: Tensor, classes: int) -> Tensor:
    forced, free = forced_gap(coins.odds, classes), coins.free_gap.clamp_min(0.0)
    columns = torch.stack([*view, view.gap * view.gap, forced, free, coins.concentration, p_value])
    return columns @ valid.to(columns.dtype)


def _labelled_sums(odds: Tensor, view: _View, distance: Tensor, labelled: Tensor, correct: Tensor) -> Tensor:
    weight, hit = labelled.to(distance.dtype), correct.to(distance.dtype)
    nll = torch.where(labelled, log_loss(odds, distance), 0.0)  # the distance may be infinite
    brier = [(score - hit).square() * weight for score in (view.confidence, view.dominance)]
    return torch.stack([nll, *brier, view.gap * hit, view.gap * (weight - hit)]).sum(1)


def _by_bin(view: _View, valid: Tensor, labelled: Tensor, correct: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    confidence, dominance, gap = view
    by_confidence, by_dominance = equal_bin(torch.stack([confidence, dominance]), bins)
    masks = torch.stack([valid, labelled, correct, labelled, correct])
    sums = torch.stack([valid * confidence, valid * gap, labelled * confidence, labelled * dominance])
    places = torch.stack([by_confidence] * 3 + [by_dominance] * 2)
    return count(places, masks, bins), count(places[:4], sums, bins)


def count(place: Tensor, weight: Tensor, bins: int) -> Tensor:
    """The sum of `weight` (int64 for booleans) in each of `bins` bins of the last axis; `place` is each one's bin."""
    weight = weight.long() if weight.dtype == torch.bool else weight
    return weight.new_zeros(*weight.shape[:-1], bins).scatter_add(-1, place, weight)


def equal_bin(score: Tensor, bins: int) -> Tensor:
    """The bin of each score among equal ones on [0, 1]; they are closed on the right, so that 1 is in the last."""
    return _as_place((score * bins).ceil() - 1.0, bins)


def _gap_bin(gap: Tensor) -> Tensor:
    return _as_place((gap.log10() - LOWEST_DECADE) * BINS_PER_DECADE + 1, GAP_BINS)


def _as_place(number: Tensor, bins: int) -> Tensor:
    """The bin of that number, or the nearest; 0 for NaN, which no integer stands for."""
    return number.nan_to_num(0.0).clamp(0, bins - 1).long()
