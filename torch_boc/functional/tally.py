"""Counts and sums over any number of samples, in memory of fixed size.

The tally of two batches is the sum of their tallies. So tallies can be added up over batches and over processes.
`core.schema` has the layout.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.chunking import chunks
from ..core.dtypes import to_wide
from ..core.schema import COINS, LabelledSums, Sums, Tally
from ..core.tally import equal_bin, is_class
from ..kernels.dispatch import choose_kernels, columns, tally_logits
from ..kernels.dispatch import tally as add_samples
from .bounds import forced_gap
from .checks import check_logits, check_target, check_trials
from .per_sample import SampleStats, sample_stats

# A larger batch is added in chunks, to bound memory: of logits for torch's operations, of a few numbers per row for
# kernels, of which every chunk starts several.
MOST_LOGITS, MOST_ROWS = 2**24, 2**21


def named_sums(total: Tally) -> tuple[Sums, LabelledSums]:
    """The sums of a tally by name."""
    size = len(Sums._fields)
    return Sums(*total.sums[:size].unbind()), LabelledSums(*total.sums[size:].unbind())


def add_sample_stats(total: Tally, stats: SampleStats, *, alpha: float = 0.05) -> None:
    """Add the tally of a batch of any shape to `total`, in place. The host never waits for a value of a tensor.

    Statistics of 0 trials add nothing to the sums of p-values.

    Samples that are not `counted` do not count at all. Rows with NaN or +inf count as `invalid` and nowhere else. A
    target that is no class counts in `bad_targets`, and its sample counts as a sample without a target.
    """
    coins, labels = stats.coins, (stats.target, stats.distance, stats.counted)
    if coins.odds.requires_grad:
        coins = coins._replace(**{name: getattr(coins, name).detach() for name in COINS})
    add_samples(total, coins, labels, stats.num_classes, stats.trials, alpha)


def add_logits(
    total: Tally,
    logits: Tensor,
    target: Tensor | None = None,
    *,
    trials: int = 100,
    alpha: float = 0.05,
    ignore_index: int | None = None,
    leave: int = 0,
) -> bool:
    """Add the tally of a batch of logits to `total`, in place: in one pass, or in chunks that need little memory.

    Args:
        total: from `empty_tally`.
        logits: shape (..., C); no gradient is taken.
        target: class indices of shape (...), or None.
        trials: the number of coin flips of the p-values; 0 to compute none.
        alpha: samples with a p-value of at most this level count as `rejected`.
        ignore_index: samples with this target do not count.
        leave: a batch of no more logits than this is not added if torch's operations would have to do it.

    Returns:
        Whether it was added.
    """
    check_logits(logits, -1)
    rows, trials = logits.detach(), trials and check_trials(trials)
    target = None if target is None else check_target(target, rows.shape[:-1])
    if tally_logits(total, rows, target, ignore_index, trials, alpha):
        return True
    by_torch, labels = choose_kernels(rows) is None, () if target is None else (target.unsqueeze(-1),)
    if by_torch and rows.numel() <= leave:
        return False
    limit = MOST_LOGITS if by_torch else MOST_ROWS * rows.shape[-1]
    for chunk, *targets in chunks(rows, *labels, limit=limit):
        stats = sample_stats(chunk, targets[0].squeeze(-1) if targets else None, ignore_index=ignore_index)
        add_sample_stats(total, stats._replace(trials=trials), alpha=alpha)
    return True


def add_classwise(excess: Tensor, logits: Tensor, target: Tensor, *, ignore_index: int | None = None) -> None:
    """Add a batch to the excess of each class in each bin, in place: its targets minus the sum of its probabilities.

    Args:
        excess: (C, bins), for bins of equal width of the probability of each class.
        logits: shape (..., C); no gradient is taken. Rows with NaN or +inf do not count.
        target: class indices of shape (...). Samples with other targets, or with `ignore_index`, do not count.
        ignore_index: samples with this target do not count.
    """
    rows, (classes, bins) = logits.detach(), excess.shape
    for chunk, labels in chunks(rows, check_target(target, rows.shape[:-1]).to(rows.device).unsqueeze(-1)):
        chance, label = to_wide(chunk).softmax(-1).flatten(0, -2), labels.reshape(-1, 1)
        counted = is_class(label, classes) & chance.isfinite().all(-1, keepdim=True)
        if ignore_index is not None:
            counted = counted & (label != ignore_index)
        chance = chance.masked_fill(~counted, 0.0)
        each = torch.arange(classes, device=rows.device)
        added = ((each == label) & counted).to(chance.dtype) - chance
        excess.view(-1).scatter_add_(0, (each * bins + equal_bin(chance, bins)).view(-1), added.view(-1))


def add_gaps(
    states: Sequence[Tensor],
    logits: Tensor,
    target: Tensor | None = None,
    *,
    part: str = "total",
    ignore_index: int | None = None,
) -> None:
    """Add a batch of logits to the sum of the gap, the number of samples, and the number of invalid rows, in place.

    Args:
        states: a sum in float64 and a number in int64, of shape (1,), or (C,) for each predicted class; and the number
            of invalid rows.
        logits: shape (..., C); no gradient is taken.
        target: class indices of shape (...), or None.
        part: "total", "forced" or "free".
        ignore_index: samples with this target do not count.
    """
    check_logits(logits, -1)
    rows, (sums, samples, invalid) = logits.detach(), states
    target = None if target is None else check_target(target, rows.shape[:-1])
    name = {"total": "gap", "forced": "odds", "free": "free_gap"}[part]
    numbers = columns(rows, (name,) if len(sums) == 1 else (name, "prediction"))
    gap = forced_gap(numbers[name], rows.shape[-1]) if part == "forced" else numbers[name]
    undefined, left_out = gap.isnan(), None
    if target is not None and ignore_index is not None:
        left_out = target == ignore_index
        gap, undefined = gap.masked_fill(left_out, math.nan), undefined & ~left_out
    bad = undefined.count_nonzero()
    invalid.add_(bad)
    if len(sums) == 1:
        sums.add_(gap.nansum())
        samples.add_((gap.numel() if left_out is None else (~left_out).count_nonzero()) - bad)
    else:
        prediction = numbers["prediction"].reshape(-1)
        sums.scatter_add_(0, prediction, gap.nan_to_num(0.0).reshape(-1))
        samples.scatter_add_(0, prediction, (gap == gap).long().reshape(-1))
