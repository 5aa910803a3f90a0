"""What later code needs of a batch: one pass over the logits takes it, and everything else is made of it.

A sample is a few numbers whatever the number of classes, so that it can wait, be padded and tallied elsewhere.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.coins import Coins
from ..core.precision import widen
from ..kernels.dtensors import is_distributed
from .checks import check_logits, check_target, check_trials
from .paths import coins_from_rows, decide, row_sums, widened
from .shards import own_part, shared_sums


class Evidence(NamedTuple):
    """What is known of each sample, without the class axis and without the logits.

    Attributes:
        coins: of each sample, in float64 (float32 on MPS).
        num_classes: C.
        trials: the number of coin flips of the p-values.
        top: the largest logit of each sample; None if the evidence was not made of logits.
        surprise: the sum over the rivals of u_j (z_top - z_j), where `extras` were asked for.
        margin: the sum over the rivals of z_top - z_j, where `extras` were asked for.
        counted: which samples count; None if all do.
        target: class indices, if there are any.
        distance: how far the target's logit is below the top, if there are targets; 0 for a target that is no class.
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
    """The one pass over the logits of a batch: scores, columns, tallies and metrics are made of what it takes.

    Args:
        logits: shape (..., C); or a DTensor, as for `bag_of_coins`.
        target: class indices of shape (...), if there are any. With a DTensor, those of the rows of this process, or a
            DTensor that is placed as the logits are, and replicated over the processes that share classes.
        dim: the class axis; by default the last, so that logits of shape (N, T, C) have their C classes there.
        trials: the number of coin flips of the p-values.
        extras: whether to take `surprise` and `margin`, which `entropy` and `logit_gap` need, and nothing else.
        ignore_index: samples with this target do not count.

    Returns:
        Evidence. It is differentiable in the logits, and holds no logits itself.

    >>> evidence = gather(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([1]))
    >>> evidence.coins.prediction, evidence.top, evidence.distance
    (tensor([0]), tensor([2.], dtype=torch.float64), tensor([1.], dtype=torch.float64))
    """
    dim, trials = check_logits(logits, dim), check_trials(trials)
    rows = logits.movedim(dim, -1)
    if is_distributed(rows):
        return _gather_part(rows, target, trials, extras, ignore_index)
    target = None if target is None else check_target(target, rows.shape[:-1])
    fused = decide(rows)
    sums = widened(row_sums(rows, fused, extras=extras))
    coins = coins_from_rows(sums, rows.shape[-1], fused)
    evidence = Evidence(coins, rows.shape[-1], trials, sums.top, sums.surprise, sums.margin)
    if target is None:
        return evidence
    counted = None if ignore_index is None else target != ignore_index
    return evidence._replace(
        counted=counted, target=target, distance=distance_below_top(rows, target, coins.prediction)
    )


def _gather_part(rows: Tensor, target: Tensor | None, trials: int, extras: bool, ignore_index: int | None) -> Evidence:
    """`gather` of a DTensor."""
    part = own_part(rows, target)
    if part.group is None:
        return gather(part.rows, part.target, trials=trials, extras=extras, ignore_index=ignore_index)
    sums, distance = shared_sums(part, extras=extras)
    sums, target = widened(sums), part.target
    coins = coins_from_rows(sums, part.classes, decide(sums.odds))
    counted = None if target is None or ignore_index is None else target != ignore_index
    numbers = (sums.top, sums.surprise, sums.margin)
    return Evidence(coins, part.classes, trials, *numbers, counted, target, distance)


def join_evidence(parts: Sequence[Evidence]) -> Evidence:
    """Several batches as one, flat; they agree in classes and trials, and in which tensors they have."""
    first = parts[0]
    coins = Coins(*(_joined(column) for column in zip(*(part.coins for part in parts), strict=True)))
    if any(part.counted is not None for part in parts):
        parts = [part if part.counted is not None else part._replace(counted=_all_of(part)) for part in parts]
    columns = [None if x[0] is None else _joined(x) for x in zip(*(part[3:] for part in parts), strict=True)]
    return Evidence(coins, first.num_classes, first.trials, *columns)


def _joined(column: Sequence[Tensor]) -> Tensor:
    return column[0].reshape(-1) if len(column) == 1 else torch.cat([x.reshape(-1) for x in column])


def _all_of(evidence: Evidence) -> Tensor:
    return torch.ones_like(evidence.coins.odds, dtype=torch.bool)


def settle(evidence: Evidence) -> tuple[Coins, Tensor, Tensor]:
    """The coins as flat tensors, which of them count, and which would but have no geometry."""
    coins = Coins(*(x.reshape(-1) for x in evidence.coins))
    finite = torch.stack([x.isfinite() for x in coins[1:]]).all(0)
    valid, invalid = finite, ~finite
    if evidence.counted is not None:
        counted = evidence.counted.reshape(-1)
        valid, invalid = counted & finite, counted & invalid
    # Rows that do not count become sure predictions, whose every quantity is finite, and weigh nothing.
    safe = Coins(coins.prediction, *(torch.where(valid, x, 0.0) for x in coins[1:]))
    return safe, valid, invalid


def is_class(target: Tensor, num_classes: int) -> Tensor:
    """Which targets are classes."""
    return (target >= 0) & (target < num_classes)


def distance_below_top(rows: Tensor, target: Tensor, prediction: Tensor) -> Tensor:
    """How far the target's logit is below the top."""
    own = torch.where(is_class(target, rows.shape[-1]), target, prediction)
    top, own = widen(rows.gather(-1, torch.stack([prediction, own], -1))).unbind(-1)
    return top - own


def log_loss(odds: Tensor, distance: Tensor) -> Tensor:
    """The negative log-likelihood of the target: log(1 + R), and how far its logit is below the top."""
    return torch.log1p(odds) + distance
