"""The layout of a tally: counts and sums over any number of samples, in memory of fixed size.

The tally of two batches is the sum of their tallies. So tallies can be added up over batches and over processes.
"""

from typing import NamedTuple

import torch
from torch import Tensor

# The histogram of the gap: the first bin is for all gaps below 1e-12, then come 50 bins per decade up to 1.
LOWEST_DECADE = -12
BINS_PER_DECADE = 50
GAP_BINS = 1 - LOWEST_DECADE * BINS_PER_DECADE


class Counts(NamedTuple):
    """How many samples count, are invalid, have a small p-value, have a target, are right, and have a bad target."""

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
    """Sums over the samples with a target. The last two are sums over the right and over the wrong predictions."""

    nll: Tensor
    brier_confidence: Tensor
    brier_dominance: Tensor
    gap_correct: Tensor
    gap_wrong: Tensor


class BinCounts(NamedTuple):
    """How many samples are in each bin of confidence. The last two fields are for bins of dominance."""

    samples: Tensor
    labelled: Tensor
    correct: Tensor
    labelled_by_dominance: Tensor
    correct_by_dominance: Tensor


class BinSums(NamedTuple):
    """Sums over the samples in each bin of confidence. The last field is for bins of dominance."""

    confidence: Tensor
    gap: Tensor
    labelled_confidence: Tensor
    labelled_dominance: Tensor


class Tally(NamedTuple):
    """The counts in int64 and the sums in float64 (float32 on MPS); b is the number of bins.

    The first axis of a tensor holds the fields of a named tuple: `Counts(*total.counts)` gives the counts by name, and
    `named_sums` gives the sums by name.

    Attributes:
        counts: (6,), the fields of `Counts`.
        sums: (13,), the fields of `Sums`, then those of `LabelledSums`.
        gap_histogram: (601,), how many gaps are in each logarithmic bin.
        bin_counts: (5, b), the fields of `BinCounts`.
        bin_sums: (4, b), the fields of `BinSums`.
    """

    counts: Tensor
    sums: Tensor
    gap_histogram: Tensor
    bin_counts: Tensor
    bin_sums: Tensor


def empty_tally(bins: int = 15, device: torch.device | str | None = None, *, like: Tensor | None = None) -> Tally:
    """The tally of no samples, on `device`, or on the device of `like`; inside vmap it has the batch axis of `like`."""
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
    """The edges of the histogram's bins: 0, then 1e-12 and so on up to 1."""
    return [0.0] + [10 ** (LOWEST_DECADE + i / BINS_PER_DECADE) for i in range(GAP_BINS)]
