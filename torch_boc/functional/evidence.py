"""The evidence of a batch: the numbers of each sample that scores, columns and tallies are computed from.

One pass over the logits gathers it. A sample has a few numbers for any number of classes, so that the evidence can be
padded, gathered from several processes, and tallied later.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..core.coins import Coins
from ..core.precision import widen
from ..kernels.dtensors import is_distributed
from . import whole
from .checks import check_target, check_trials, classes_last
from .paths import coins_from_rows, decide, row_sums, widened
from .shards import own_part, shared_sums


class Evidence(NamedTuple):
    """What is known of each sample, without the class axis and without the logits.

    Attributes:
        coins: the coins of each sample, in float64 (float32 on MPS).
        num_classes: C.
        trials: the number of coin flips of the p-values.
        top: the largest logit of each sample; None if the evidence was not gathered from logits.
        surprise: the sum over the rivals of u_j (z_top - z_j); None without `extras`.
        margin: the sum over the rivals of z_top - z_j; None without `extras`.
        counted: which samples count; None if all samples count.
        target: class indices, or None.
        distance: how far the target's logit is below the top, 0 for a target that is no class; None without targets.
    """

    coins: Coins
    num_classes: int
    trials: int = 100
    top: Tensor | None = None
    surprise: Tensor | None = None
    margin: Tensor | None = None
    counted: Tensor | None = None
    target: Tensor | None = None
    distance: Tensor | None = None


def gather(
    logits: Tensor,
    target: Tensor | None = None,
    *,
    dim: int = -1,
    trials: int = 100,
    extras: bool = False,
    ignore_index: int | None = None,
) -> Evidence:
    """Gather the evidence of a batch in one pass over its logits, for scores, columns, tallies and metrics.

    Args:
        logits: shape (..., C). They may be a DTensor, as for `bag_of_coins`.
        target: class indices of shape (...), or None. If the logits are a DTensor: the targets of the rows of this
            process, or a DTensor with the placements of the logits, replicated over the processes that share classes.
        dim: the class axis; by default the last, so that logits of shape (N, T, C) have their C classes there.
        trials: the number of coin flips of the p-values.
        extras: whether to compute `surprise` and `margin`. Only `entropy` and `logit_gap` need them.
        ignore_index: samples with this target do not count.

    Returns:
        Evidence. It is differentiable in the logits, and does not contain the logits.

    >>> evidence = gather(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([1]))
    >>> evidence.coins.prediction, evidence.top, evidence.distance
    (tensor([0]), tensor([2.], dtype=torch.float64), tensor([1.], dtype=torch.float64))
    """
    trials = check_trials(trials)
    rows = classes_last(logits, dim)
    if is_distributed(rows):
        return _gather_part(rows, target, trials, extras, ignore_index)
    target = None if target is None else check_target(target, rows.shape[:-1])
    counted = None if ignore_index is None or target is None else target != ignore_index
    fused, classes = decide(rows), rows.shape[-1]
    found = whole.evidence_of(rows, fused, extras=extras, target=target)
    if found is not None:
        top, surprise, margin, distance = found[5:]
        return Evidence(Coins(*found[:5]), classes, trials, top, surprise, margin, counted, target, distance)  # type: ignore[arg-type]
    sums = widened(row_sums(rows, fused, extras=extras))
    coins = coins_from_rows(sums, classes, fused)
    distance = None if target is None else distance_below_top(rows, target, coins.prediction)
    return Evidence(coins, classes, trials, sums.top, sums.surprise, sums.margin, counted, target, distance)


def _gather_part(rows: Tensor, target: Tensor | None, trials: int, extras: bool, ignore_index: int | None) -> Evidence:
    """`gather` for logits that are a DTensor."""
    part = own_part(rows, target)
    if part.group is None:
        return gather(part.rows, part.target, trials=trials, extras=extras, ignore_index=ignore_index)
    sums, distance = shared_sums(part, extras=extras)
    sums, target = widened(sums), part.target
    coins = coins_from_rows(sums, part.classes, decide(sums.odds))
    counted = None if target is None or ignore_index is None else target != ignore_index
    numbers = (sums.top, sums.surprise, sums.margin)
    return Evidence(coins, part.classes, trials, *numbers, counted, target, distance)


def every(evidence: Evidence, start: int, step: int) -> Evidence:
    """The samples `start`, `start + step`, `start + 2 step` and so on of the first axis.

    >>> every(gather(torch.eye(4)), 1, 2).coins.prediction
    tensor([1, 3])
    """
    values = [x[start::step] if isinstance(x, Tensor) else x for x in evidence]
    return Evidence(Coins(*(x[start::step] for x in evidence.coins)), *values[1:])  # type: ignore[arg-type]


def settle(evidence: Evidence) -> tuple[Coins, Tensor, Tensor]:
    """The coins as flat tensors, which samples count, and which samples are left out as invalid (NaN or infinite)."""
    numbers = torch.stack([flat(x) for x in evidence.coins[1:]])
    total = numbers.sum(0)
    valid = total - total == 0.0  # False if one of the numbers is NaN or infinite
    if evidence.counted is None:
        unused = invalid = ~valid
    else:
        counted = flat(evidence.counted)
        valid = counted & valid
        unused, invalid = ~valid, counted > valid
    # Rows that do not count become sure predictions: all their numbers are finite, and their weight is 0.
    return Coins(flat(evidence.coins.prediction), *numbers.masked_fill_(unused, 0.0).unbind()), valid, invalid


def flat(x: Tensor) -> Tensor:
    """`x` with a single axis."""
    return x if x.ndim == 1 else x.reshape(-1)


def is_class(target: Tensor, num_classes: int) -> Tensor:
    """Which targets are a class, from 0 to `num_classes` - 1."""
    return target == target.clamp(0, num_classes - 1)


def distance_below_top(rows: Tensor, target: Tensor, prediction: Tensor) -> Tensor:
    """How far the target's logit is below the top; 0 for a target that is no class."""
    own = torch.where(is_class(target, rows.shape[-1]), target, prediction)
    top, own = widen(rows.gather(-1, torch.stack([prediction, own], -1))).unbind(-1)
    return top - own


def log_loss(odds: Tensor, distance: Tensor) -> Tensor:
    """The negative log-likelihood of the target: log(1 + R) plus the distance of its logit below the top."""
    return torch.log1p(odds) + distance
