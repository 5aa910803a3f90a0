"""Add batches to a tally or to a mean gap, in place; `tallies.py` has the layout of a tally."""

import torch
from torch import Tensor

from . import whole
from .checks import bare, check_target, check_trials, classes_last
from .evidence import Evidence, gather
from .paths import decide
from .tallies import Tally, empty_tally
from .tally_formulas import add_by_formula, add_gaps_by_formula

GapStates = tuple[Tensor, Tensor, Tensor]


def tally(evidence: Evidence, *, bins: int = 15, alpha: float = 0.05) -> Tally:
    """The tally of a batch of any shape. The host never waits for a value of a tensor.

    Samples that are not `counted` do not count at all. Rows with NaN or +inf count as `invalid` and nowhere else. A
    target that is no class counts in `bad_targets`, and its sample counts as a sample without a target.
    """
    total = empty_tally(bins, like=evidence.coins.odds)
    add_evidence(total, evidence, alpha=alpha)
    return total


def add_evidence(total: Tally, evidence: Evidence, *, alpha: float = 0.05) -> None:
    """Add the tally of a batch to `total`, in place."""
    coins, how = evidence.coins, (evidence.num_classes, evidence.trials, alpha)
    has_labels = evidence.target is not None and evidence.distance is not None
    labels = (evidence.target, evidence.distance) if has_labels else (None, None)
    if not whole.add_evidence(decide(coins.odds), coins, (*labels, evidence.counted), how, total):
        add_by_formula(total, evidence, alpha)


def add_logits(
    total: Tally,
    logits: Tensor,
    target: Tensor | None = None,
    *,
    dim: int = -1,
    trials: int = 100,
    alpha: float = 0.05,
    ignore_index: int | None = None,
) -> None:
    """Add the tally of a batch of logits to `total`, in place. If there is a kernel, this is one call of it.

    Args:
        total: from `empty_tally`.
        logits: shape (..., C); no gradient is taken.
        target: class indices of shape (...), or None.
        dim: the class axis; by default the last.
        trials: the number of coin flips of the p-values.
        alpha: samples with a p-value of at most this level count as `rejected`.
        ignore_index: samples with this target do not count.
    """
    rows, trials = classes_last(bare(logits), dim), check_trials(trials)
    target = None if target is None else check_target(target, rows.shape[:-1])
    if not whole.add_tally(rows, decide(rows), target, (ignore_index, trials, alpha), total):
        add_evidence(total, gather(rows, target, trials=trials, ignore_index=ignore_index), alpha=alpha)


def gap_tally(evidence: Evidence, *, part: str = "total", per_class: bool = False) -> GapStates:
    """The sum of the gap (or of its forced or free part), the number of samples, and the number of invalid rows.

    With `per_class`, the sum and the number of samples have shape (C,), one for each predicted class. Samples count as
    in `tally`.
    """
    size, odds = evidence.num_classes if per_class else 1, evidence.coins.odds
    states = odds.new_zeros(size), odds.new_zeros(size, dtype=torch.int64), odds.new_zeros((), dtype=torch.int64)
    add_gaps_by_formula(states, evidence, part)
    return states


def add_gaps(
    states: GapStates,
    logits: Tensor,
    target: Tensor | None = None,
    *,
    dim: int = -1,
    part: str = "total",
    ignore_index: int | None = None,
) -> None:
    """Add the `gap_tally` of a batch of logits to `states`, in place; the arguments are those of `add_logits`."""
    rows = classes_last(bare(logits), dim)
    target = None if target is None else check_target(target, rows.shape[:-1])
    if not whole.add_gaps(rows, decide(rows), target, (ignore_index, part), states):
        add_gaps_by_formula(states, gather(rows, target, ignore_index=ignore_index), part)
