"""The summary of the probe over many samples, as a flat dict of scalars."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .calibration import error_of_bins
from .checks import check_logits
from .tallies import (
    BINS_PER_DECADE,
    GAP_BINS,
    LOWEST_DECADE,
    BinCounts,
    BinSums,
    Counts,
    LabelledSums,
    Tally,
    empty_tally,
    named_sums,
)
from .tally import add_logits

QUANTILES = {"gap_q05": 0.05, "gap_q50": 0.5, "gap_q95": 0.95}
# The keys for one line of a log, and the keys that need targets.
SHORT_KEYS = ("gap", "free_gap", "confidence", "dominance", "concentration", "rejection_rate")
LABELLED_KEYS = frozenset({"accuracy", "ece_confidence", "ece_dominance", *LabelledSums._fields})


def boc_summary(
    logits: Tensor,
    target: Tensor | None = None,
    *,
    trials: int = 100,
    bins: int = 15,
    alpha: float = 0.05,
    ignore_index: int | None = None,
    dim: int = 1,
) -> dict[str, Tensor]:
    """Summarize the probe over a set of samples, with the same keys as `BoCMetric`.

    The keys are always the same. A mean over no samples is NaN.

    - `samples`, the number of samples; `invalid`, the number of rows with NaN or +inf, which count nowhere else.
    - Means over the samples: `confidence`, `dominance`, `gap`, `forced_gap`, `free_gap`, `concentration`, `p_value`
      (of the expected wins) and `structural_score`; `rejection_rate`, the share with a p-value of at most `alpha`.
    - The spread of the gap: `gap_std`, and the quantiles `gap_q05`, `gap_q50`, `gap_q95`. A quantile is exact to
      one bin of a histogram with 50 bins per decade (a factor of 1.05). A quantile below 1e-12 is given as 0.
    - Over the samples with a target: `accuracy`, `ece_confidence`, `ece_dominance`, `nll`, `brier_confidence`,
      `brier_dominance`, and the mean gap of right and wrong predictions, `gap_correct` and `gap_wrong`.

    Args:
        logits: shape (N, C) or (N, C, ...), with the classes on `dim`.
        target: class indices of shape (N,) or (N, ...). Without it, the keys that need targets are NaN.
        trials: the number of coin flips of the test.
        bins: the number of bins of equal width for the calibration errors.
        alpha: the level of `rejection_rate`.
        ignore_index: samples with this target do not count.
        dim: the class axis; by default 1 as in the metrics, so that (N, C, T) has C classes. -1 is for (N, T, C).

    Returns:
        Scalar tensors in float64 (float32 on MPS), by key.

    >>> logits = torch.tensor([[4.0, 1.0, 0.0], [0.0, 2.0, 1.0]])
    >>> summary = boc_summary(logits, torch.tensor([0, 2]))
    >>> {key: round(summary[key].item(), 3) for key in ("samples", "confidence", "gap", "free_gap", "accuracy")}
    {'samples': 2.0, 'confidence': 0.801, 'gap': 0.086, 'free_gap': 0.004, 'accuracy': 0.5}
    """
    check_logits(logits, dim)
    total = empty_tally(bins, like=logits)
    add_logits(total, logits, target, dim=dim, trials=trials, alpha=alpha, ignore_index=ignore_index)
    return summarize(total)


def check_keys(keys: Sequence[str]) -> tuple[str, ...]:
    """Return `keys` without repetitions if all are keys of a summary, or raise."""
    known = list(summarize(empty_tally()))
    if isinstance(keys, str) or not set(keys) <= set(known):
        raise ValueError(f"expected keys as a list of names among {', '.join(known)}, got {keys!r}")
    return tuple(dict.fromkeys(keys))


def summarize(total: Tally) -> dict[str, Tensor]:
    """The summary of a tally; see `boc_summary`."""
    count = Counts(*total.counts.to(total.sums.dtype).unbind())
    sums, over_labelled = named_sums(total)
    mean = {name: value / count.samples for name, value in sums._asdict().items()}
    variance = mean.pop("gap_square") - mean["gap"] ** 2
    return {
        "samples": count.samples,
        "invalid": count.invalid,
        **mean,
        "gap_std": variance.clamp_min(0).sqrt(),
        "rejection_rate": count.rejected / count.samples,
        "structural_score": 1 - mean["p_value"],
        **{name: histogram_quantile(total.gap_histogram, level) for name, level in QUANTILES.items()},
        "accuracy": count.correct / count.labelled,
        **_calibration_errors(total),
        "nll": over_labelled.nll / count.labelled,
        "brier_confidence": over_labelled.brier_confidence / count.labelled,
        "brier_dominance": over_labelled.brier_dominance / count.labelled,
        "gap_correct": over_labelled.gap_correct / count.correct,
        "gap_wrong": over_labelled.gap_wrong / (count.labelled - count.correct),
    }


def _calibration_errors(total: Tally) -> dict[str, Tensor]:
    counts, sums = BinCounts(*total.bin_counts.unbind()), BinSums(*total.bin_sums.unbind())
    by_confidence = counts.correct - sums.labelled_confidence
    by_dominance = counts.correct_by_dominance - sums.labelled_dominance
    return {
        "ece_confidence": error_of_bins(by_confidence, counts.labelled.sum()),
        "ece_dominance": error_of_bins(by_dominance, counts.labelled_by_dominance.sum()),
    }


def histogram_quantile(histogram: Tensor, level: float) -> Tensor:
    """The quantile of the gap at `level`, interpolated on the logarithmic scale of its bin; NaN without samples."""
    real = torch.float32 if histogram.device.type == "mps" else torch.float64
    below = histogram.cumsum(0).to(real)
    wanted = level * below[-1]
    place = torch.searchsorted(below, wanted.unsqueeze(0)).clamp(max=GAP_BINS - 1)
    inside = histogram[place].to(real)
    share = (wanted - (below[place] - inside)) / inside  # 0 / 0 = NaN without samples
    value = 10 ** (LOWEST_DECADE + (place - 1 + share) / BINS_PER_DECADE)
    return torch.where((place == 0) & (share == share), 0.0, value).squeeze(0)
