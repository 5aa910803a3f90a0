"""The layout of a tally: sums of fixed size over any number of samples, which tell the whole picture of the probe.

A tally of two batches is the sum of their tallies, so that it can be accumulated, and added up over processes.
"""

from typing import NamedTuple

import torch
from torch import Tensor

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


def empty_tally(bins: int = 15, device: torch.device | str | None = None, *, like: Tensor | None = None) -> Tally:
    """The tally of no samples, on that device, or on that of `like` and mapped as it is within vmap."""
    like = torch.empty(0, device=device) if like is None else like
    real = torch.float32 if like.device.type == "mps" else torch.float64

    def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return like.new_zeros(shape, dtype=dtype)

    sums = zeros(len(Sums._fields) + len(LabelledSums._fields), dtype=real)
    bin_counts, bin_sums = zeros(len(BinCounts._fields), bins), zeros(len(BinSums._fields), bins, dtype=real)
    return Tally(zeros(len(Counts._fields)), sums, zeros(GAP_BINS), bin_counts, bin_sums)


def named_sums(total: Tally) -> tuple[Sums, LabelledSums]:
    """The sums of a tally by name."""
    size = len(Sums._fields)
    return Sums(*total.sums[:size].unbind()), LabelledSums(*total.sums[size:].unbind())


def gap_edges() -> list[float]:
    """The edges of the histogram's bins, from 0 over 1e-12 to 1."""
    return [0.0] + [10 ** (LOWEST_DECADE + i / BINS_PER_DECADE) for i in range(GAP_BINS)]
