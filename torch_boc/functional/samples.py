"""The per-sample half of a tally: the one part that sees the logits, and what it hands on.

A sample is a few numbers whatever the number of classes, so that it can be gathered, padded and tallied elsewhere.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .checks import check_logits, check_target
from .coins import Coins, coins_from_rows
from .precision import widen
from .rows import wide_row_sums


class Samples(NamedTuple):
    """What a tally needs of each sample, without the class axis: the same few numbers whatever the number of classes.

    Attributes:
        coins: of each sample, in float64 (float32 on MPS).
        counted: which samples count.
        target: class indices, if there are any.
        distance: how far the target's logit is below the top, if there are targets; 0 for a target that is no class.
    """

    coins: Coins
    counted: Tensor
    target: Tensor | None = None
    distance: Tensor | None = None


def take_samples(
    logits: Tensor, target: Tensor | None = None, *, ignore_index: int | None = None, dim: int = 1
) -> Samples:
    """The one pass over the logits of a batch; `tally_samples` does the rest, then or later, here or elsewhere."""
    rows = logits.detach().movedim(check_logits(logits, dim), -1)
    target = None if target is None else check_target(target, rows.shape[:-1])
    coins = coins_from_rows(wide_row_sums(rows), rows.shape[-1])
    counted = _which_count(coins.odds, target, ignore_index)
    if target is None:
        return Samples(coins, counted)
    return Samples(coins, counted, target, distance_below_top(rows, target, coins.prediction))


def join_samples(parts: Sequence[Samples]) -> Samples:
    """Several batches of samples as one, flat; either all have targets or none."""
    coins = Coins(*(_joined(column) for column in zip(*(part.coins for part in parts), strict=True)))
    counted, *labels = zip(*(part[1:] for part in parts), strict=True)
    return Samples(coins, _joined(counted), *(None if column[0] is None else _joined(column) for column in labels))


def _joined(column: Sequence[Tensor]) -> Tensor:
    return torch.cat([x.reshape(-1) for x in column])


def _which_count(odds: Tensor, target: Tensor | None, ignore_index: int | None) -> Tensor:
    """Which samples count: all but those whose target is `ignore_index`."""
    if target is None or ignore_index is None:
        return torch.ones_like(odds, dtype=torch.bool)
    return target != ignore_index


def settle(coins: Coins, counted: Tensor) -> tuple[Coins, Tensor, Tensor]:
    """The coins as flat tensors, which of them count, and which would but have no geometry."""
    coins, counted = Coins(*(x.reshape(-1) for x in coins)), counted.reshape(-1)
    finite = torch.stack([x.isfinite() for x in coins[1:]]).all(0)
    valid = counted & finite
    # Rows that do not count become sure predictions, whose every quantity is finite, and weigh nothing.
    safe = Coins(coins.prediction, *(torch.where(valid, x, 0.0) for x in coins[1:]))
    return safe, valid, counted & ~finite


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
