"""The summary of the probe over many samples, as a flat dict of scalars."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.dtypes import to_wide
from ..core.schema import BINS_PER_DECADE, GAP_BINS, LOWEST_DECADE, BinCounts, BinSums, Counts, LabelledSums, Tally
from ..core.tally import empty_tally, equal_bin
from .bounds import forced_gap
from .checks import check_logits, check_names, classes_last
from .per_sample import sample_stats
from .tally import add_logits, named_sums

QUANTILES = {"gap_q05": 0.05, "gap_q50": 0.5, "gap_q95": 0.95}
COVERAGES = {"coverage_at_1": 0.01, "coverage_at_2": 0.02, "coverage_at_5": 0.05}
# The keys that must be asked for, because they need states of their own.
RISK_KEYS, CLASSWISE = ("aurc", "augrc", *COVERAGES, "ece_equal_mass"), "ece_classwise"
# The keys whose p-values take more time than all others together.
P_VALUE_KEYS = ("p_value", "rejection_rate", "structural_score")
# What the loops of others log by default.
DEFAULT_KEYS = ("accuracy", "ece", "nll", "confidence", "dominance", "gap", "free_gap")
# The keys that need targets.
LABELLED_KEYS = frozenset({"accuracy", "ece", "ece_dominance", *LabelledSums._fields, *RISK_KEYS, CLASSWISE})


def boc_summary(
    logits: Tensor,
    target: Tensor | None = None,
    *,
    trials: int = 100,
    bins: int = 15,
    alpha: float = 0.05,
    ignore_index: int | None = -100,
    dim: int | None = None,
) -> dict[str, Tensor]:
    """Summarize the probe over a set of samples, with the same keys as `BoCMetric`.

    The keys are always the same. A mean over no samples is NaN. Probabilities instead of logits are not noticed,
    because no value is read; `BoCMetric` rejects them.

    - `samples`, the number of samples; `invalid`, the number of rows with NaN or +inf, which count nowhere else.
    - Means over the samples: `confidence`, `dominance`, `gap`, `forced_gap`, `free_gap`, `concentration`, `p_value`
      (of the expected wins) and `structural_score`; `rejection_rate`, the share with a p-value of at most `alpha`.
    - The spread of the gap: `gap_std`, and the quantiles `gap_q05`, `gap_q50`, `gap_q95`. A quantile is exact to
      one bin of a histogram with 50 bins per decade (a factor of 1.05). A quantile below 1e-12 is given as 0.
    - Over the samples with a target: `accuracy`, `ece`, `ece_dominance`, `nll`, `brier_confidence`,
      `brier_dominance`, and the mean gap of correct and wrong predictions, `gap_correct` and `gap_wrong`.

    Args:
        logits: shape (N, C), or with more axes.
        target: class indices of shape (N,) or (N, ...). Without it, the keys that need targets are NaN.
        trials: the number of coin flips of the test.
        bins: the number of bins of equal width for the calibration errors.
        alpha: the level of `rejection_rate`.
        ignore_index: samples with this target do not count; None counts all.
        dim: the class axis; 1 for segmentation, -1 for tokens. By default the second of (N, C); with more axes, the
            shape of the target says where it is.

    Returns:
        Scalar tensors in float64 (float32 on MPS), by key.

    >>> logits = torch.tensor([[4.0, 1.0, 0.0], [0.0, 2.0, 1.0]])
    >>> summary = boc_summary(logits, torch.tensor([0, 2]))
    >>> {key: round(summary[key].item(), 3) for key in ("samples", "confidence", "gap", "free_gap", "accuracy")}
    {'samples': 2.0, 'confidence': 0.801, 'gap': 0.086, 'free_gap': 0.004, 'accuracy': 0.5}
    """
    rows, total = classes_last(logits, dim, target), empty_tally(bins, like=logits)
    add_logits(total, rows, target, trials=trials, alpha=alpha, ignore_index=ignore_index)
    return summarize(total)


def coherence_gap(
    logits: Tensor,
    target: Tensor | None = None,
    *,
    part: str = "total",
    average: str | None = "micro",
    ignore_index: int | None = -100,
    dim: int | None = None,
) -> Tensor:
    """The mean coherence gap of a batch, as `CoherenceGap` accumulates it over batches; it is differentiable.

    Rows with NaN or +inf do not count. A mean over no samples is NaN.

    Args:
        logits: shape (N, C), or with more axes.
        target: class indices of shape (N,) or (N, ...), for `ignore_index` and the class axis.
        part: "total", "forced" (the part that the confidence decides) or "free" (the part that the geometry adds).
        average: "micro" for one mean; None or "none" for one of each predicted class.
        ignore_index: samples with this target do not count; None counts all.
        dim: the class axis, as for `boc_summary`.

    Returns:
        A scalar, or (C,), in float64 (float32 on MPS).

    >>> coherence_gap(torch.tensor([[4.0, 1.0, 0.0], [0.0, 2.0, 1.0]]))
    tensor(0.0859, dtype=torch.float64)
    """
    check_gap(part, average)
    dim = check_logits(logits, dim, target)
    stats = sample_stats(logits, target, dim=dim, ignore_index=ignore_index)
    coins, classes = stats.coins, stats.num_classes
    gap = {"total": coins.gap, "forced": forced_gap(coins.odds, classes), "free": coins.free_gap}[part].reshape(-1)
    counted = ~gap.isnan() if stats.counted is None else ~gap.isnan() & stats.counted.reshape(-1)
    group = coins.prediction.reshape(-1) if average != "micro" else torch.zeros_like(counted, dtype=torch.int64)
    zeros = gap.new_zeros(classes if average != "micro" else 1)
    sums = zeros.scatter_add(0, group, gap.masked_fill(~counted, 0.0))
    mean = sums / zeros.scatter_add(0, group, counted.to(gap.dtype))
    return mean if average != "micro" else mean.squeeze(0)


def check_gap(part: str, average: str | None) -> None:
    """Raise unless these are arguments of `coherence_gap`."""
    if part not in ("total", "forced", "free"):
        raise ValueError(f"expected part among total, forced, free, got {part!r}")
    if average not in ("micro", "none", None):
        raise ValueError(f"expected average among micro, none, got {average!r}")


def check_keys(keys: Sequence[str]) -> tuple[str, ...]:
    """Return `keys` without repetitions if all are keys of `BoCMetric`; otherwise raise."""
    return check_names("keys", keys, [*summarize(empty_tally()), *RISK_KEYS, CLASSWISE])


def summarize(total: Tally, *, p_values: bool = True) -> dict[str, Tensor]:
    """The summary of a tally; see `boc_summary`. It has no keys of p-values if the tally was made with 0 trials."""
    number = Counts(*total.counts.to(total.sums.dtype).unbind())
    sums, over_labelled = named_sums(total)
    mean = {name: value / number.samples for name, value in sums._asdict().items()}
    variance = mean.pop("gap_square") - mean["gap"] ** 2
    bins, bin_sums = BinCounts(*total.bin_counts.unbind()), BinSums(*total.bin_sums.unbind())
    by_confidence = bins.correct - bin_sums.labelled_confidence
    by_dominance = bins.correct_by_dominance - bin_sums.labelled_dominance
    summary = {
        "samples": number.samples,
        "invalid": number.invalid,
        **mean,
        "gap_std": variance.clamp_min(0).sqrt(),
        "rejection_rate": number.rejected / number.samples,
        "structural_score": 1 - mean["p_value"],
        **{name: histogram_quantile(total.gap_histogram, level) for name, level in QUANTILES.items()},
        "accuracy": number.correct / number.labelled,
        "ece": binned_error(by_confidence, bins.labelled.sum()),
        "ece_dominance": binned_error(by_dominance, bins.labelled_by_dominance.sum()),
        **{name: value / number.labelled for name, value in over_labelled._asdict().items()},
        "gap_correct": over_labelled.gap_correct / number.correct,
        "gap_wrong": over_labelled.gap_wrong / (number.labelled - number.correct),
    }
    return {key: value for key, value in summary.items() if p_values or key not in P_VALUE_KEYS}


def histogram_quantile(histogram: Tensor, level: float) -> Tensor:
    """The quantile of the gap at `level`, interpolated on the logarithmic scale of its bin; NaN without samples."""
    below = to_wide(histogram.cumsum(0))
    wanted = level * below[-1]
    index = torch.searchsorted(below, wanted.unsqueeze(0)).clamp(max=GAP_BINS - 1)
    inside = to_wide(histogram[index])
    share = (wanted - (below[index] - inside)) / inside  # 0 / 0 = NaN without samples
    value = 10 ** (LOWEST_DECADE + (index - 1 + share) / BINS_PER_DECADE)
    return torch.where((index == 0) & (share == share), 0.0, value).squeeze(0)


def sum_by_bin(index: Tensor, weight: Tensor, bins: int) -> Tensor:
    """Sum `weight` by bin along the last axis. `index` is the bin of each weight; booleans are summed in int64."""
    weight = weight.long() if weight.dtype == torch.bool else weight
    return weight.new_zeros(*weight.shape[:-1], bins).scatter_add(-1, index, weight)


def calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> Tensor:
    """The expected calibration error: the mean over samples of |accuracy - mean confidence| of their bin.

    Args:
        confidence: (N,), in [0, 1].
        correct: (N,), which predictions are correct, or the probability that each is.
        bins: the number of bins of confidence, which have equal width.

    Returns:
        A scalar in float64 (float32 on MPS).

    >>> calibration_error(torch.tensor([0.75, 0.75, 0.25, 0.25]), torch.tensor([True, False, False, False]), bins=2)
    tensor(0.2500, dtype=torch.float64)
    """
    excess = sum_by_bin(equal_bin(confidence, bins), to_wide(correct) - to_wide(confidence), bins)
    return binned_error(excess, len(confidence))


def binned_error(excess: Tensor, samples: Tensor | int) -> Tensor:
    """The calibration error from the excess of each bin, with the bins on the last axis: sum of |excess| / samples.

    Args:
        excess: for each bin, the number of correct predictions minus the sum of the confidences.
        samples: the number of samples in all bins together.
    """
    return excess.abs().sum(-1) / samples
