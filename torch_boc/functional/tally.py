"""Sums of fixed size over any number of samples, from which the whole picture of the probe is computed.

A tally of two batches is the sum of their tallies, so that it can be accumulated, and added up over processes.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..core.coins import Coins
from ..core.precision import widen
from .bins import as_place, count, equal_bin
from .bounds import forced_gap
from .evidence import Evidence, is_class, log_loss, settle
from .trials import log_p_value

# The histogram of the gap: a first bin for all below 1e-12, then 50 bins to the decade up to 1.
LOWEST_DECADE = -12
BINS_PER_DECADE = 50
GAP_BINS = 1 - LOWEST_DECADE * BINS_PER_DECADE


class Counts(NamedTuple):
    """How many samples: all, those without geometry, with a small p-value, with a target, right, with a bad target."""

    samples: Tensor
    invalid: Tensor
    rejected: Tensor
    labelled: Tensor
    correct: Tensor
    bad_targets: Tensor


class Sums(NamedTuple):
    """Sums over the samples that count."""

    confidence: Tensor
    dominance: Tensor
    gap: Tensor
    gap_square: Tensor
    forced_gap: Tensor
    free_gap: Tensor
    concentration: Tensor
    p_value: Tensor


class LabelledSums(NamedTuple):
    """Sums over the samples with a target; the last two over the right and over the wrong predictions."""

    nll: Tensor
    brier_confidence: Tensor
    brier_dominance: Tensor
    gap_correct: Tensor
    gap_wrong: Tensor


class BinCounts(NamedTuple):
    """How many samples in each bin of confidence; the last two in each bin of dominance."""

    samples: Tensor
    labelled: Tensor
    correct: Tensor
    labelled_by_dominance: Tensor
    correct_by_dominance: Tensor


class BinSums(NamedTuple):
    """Sums over the samples in each bin of confidence; the last in each bin of dominance."""

    confidence: Tensor
    gap: Tensor
    labelled_confidence: Tensor
    labelled_dominance: Tensor


class Tally(NamedTuple):
    """Counts in int64 and sums in float64 (float32 on MPS); b is the number of bins.

    A tensor holds the fields of a named tuple on its first axis: `Counts(*total.counts)` gives them their names, and
    `named_sums` those of the sums.

    Attributes:
        counts: (6,), the fields of `Counts`.
        sums: (13,), the fields of `Sums`, then those of `LabelledSums`.
        gap_histogram: (601,), how many gaps in each logarithmic bin.
        bin_counts: (5, b), the fields of `BinCounts`.
        bin_sums: (4, b), the fields of `BinSums`.
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

    sums = zeros(len(Sums._fields) + len(LabelledSums._fields), dtype=real)
    bin_counts, bin_sums = zeros(len(BinCounts._fields), bins), zeros(len(BinSums._fields), bins, dtype=real)
    return Tally(zeros(len(Counts._fields)), sums, zeros(GAP_BINS), bin_counts, bin_sums)


def named_sums(total: Tally) -> tuple[Sums, LabelledSums]:
    """The sums of a tally by name."""
    size = len(Sums._fields)
    return Sums(*total.sums[:size].unbind()), LabelledSums(*total.sums[size:].unbind())


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
    counts = Counts(valid, invalid, valid & (p_value <= alpha), labelled, correct, bad_targets=unlabelled)
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
    columns = torch.stack(
        Sums(
            *view,
            gap_square=view.gap * view.gap,
            forced_gap=forced,
            free_gap=free,
            concentration=coins.concentration,
            p_value=p_value,
        )
    )
    return columns @ valid.to(columns.dtype)


def _labelled_sums(odds: Tensor, view: _View, distance: Tensor, labelled: Tensor, correct: Tensor) -> Tensor:
    weight, hit = labelled.to(distance.dtype), correct.to(distance.dtype)
    nll = torch.where(labelled, log_loss(odds, distance), 0.0)  # the distance may be infinite
    columns = LabelledSums(
        nll,
        brier_confidence=(view.confidence - hit).square() * weight,
        brier_dominance=(view.dominance - hit).square() * weight,
        gap_correct=view.gap * hit,
        gap_wrong=view.gap * (weight - hit),
    )
    return torch.stack(columns).sum(1)


def _by_bin(view: _View, valid: Tensor, labelled: Tensor, correct: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    confidence, dominance, gap = view
    by_confidence, by_dominance = equal_bin(torch.stack([confidence, dominance]), bins)
    masks = BinCounts(valid, labelled, correct, labelled_by_dominance=labelled, correct_by_dominance=correct)
    sums = BinSums(
        valid * confidence,
        valid * gap,
        labelled_confidence=labelled * confidence,
        labelled_dominance=labelled * dominance,
    )
    places = torch.stack([by_confidence] * 3 + [by_dominance] * 2)  # of the masks; the first four are those of the sums
    return count(places, torch.stack(masks), bins), count(places[: len(sums)], torch.stack(sums), bins)


def _gap_bin(gap: Tensor) -> Tensor:
    return as_place((gap.log10() - LOWEST_DECADE) * BINS_PER_DECADE + 1, GAP_BINS)
