"""The probe itself: one bag of coins per row of logits."""

from typing import overload

import torch
from torch import Tensor

from ..core.blocks import blockwise
from ..core.coins import Coins
from ..core.precision import widen
from ..core.standing import ClassCoins, class_coins
from . import whole
from .checks import check_target, classes_last
from .paths import Fused, coins_from_rows, decide, row_sums, standing

__all__ = ["ClassCoins", "Coins", "bag_of_coins"]


@overload
def bag_of_coins(logits: Tensor, *, dim: int = -1, index: None = None) -> Coins: ...
@overload
def bag_of_coins(logits: Tensor, *, dim: int = -1, index: Tensor) -> ClassCoins: ...
def bag_of_coins(logits: Tensor, *, dim: int = -1, index: Tensor | None = None) -> Coins | ClassCoins:
    """Probe whether the confidence of each prediction agrees with the geometry of its logits.

    With u_j = exp(z_j - z_top) over the C - 1 rivals of the top class, and R and Q the sums of u_j and u_j^2/(1 + u_j):

        odds = R        loss = (R - Q) / (C - 1)        gap = R / (1 + R) - loss

    Args:
        logits: shape (..., C), on any device and of any floating dtype; log-probabilities work as well. float16 and
            bfloat16 are computed in float32. A row with NaN or +inf gives NaN, and its prediction is that of
            torch.argmax. A class with -inf always loses.
        dim: the class axis; by default the last, so that logits of shape (N, T, C) have their C classes there.
        index: a class of each row, as integers of the shape of `logits` without `dim`. Then the coins are about this
            class instead of the top: the token that was emitted, or the target. An index that is no class, such as
            -100, gives NaN.

    Returns:
        Coins, each field with the shape of `logits` without `dim`. With `index`, these are `ClassCoins`, which have the
        `log_probability` and the `rank` of the class as well. Their concentration and free gap are NaN for a class
        that has not the largest logit, because the bounds of the dominance are known only for the top. A class with
        a logit of -inf has a loss of NaN, because two such classes have no coin.

        If several classes have the largest logit, the prediction is the first of them. For C = 2 the gap is exactly 0:
        there is one coin, and its chance is the confidence. The concentration of float32 logits has an error of at most
        2e-6, even if the logits are nearly equal. It is 0 if the two bounds of the dominance are equal.

    >>> coins = bag_of_coins(torch.tensor([[2.0, 1.0, 0.0, -1.0]]))
    >>> coins.prediction, coins.confidence, coins.dominance, coins.gap
    (tensor([0]), tensor([0.6439]), tensor([0.8548]), tensor([0.2109]))
    >>> second = bag_of_coins(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), index=torch.tensor([1]))
    >>> second.rank, second.confidence, second.dominance, second.log_probability
    (tensor([2]), tensor([0.2369]), tensor([0.6269]), tensor([-1.4402]))
    """
    rows = classes_last(logits, dim)
    if index is not None:
        return _coins_of_class(rows, index)
    return _coins_of_top(rows, decide(rows))


def _coins_of_top(rows: Tensor, fused: Fused) -> Coins:
    found = whole.coins_of(rows, fused)
    if found is not None:
        return found

    def coins(rows: Tensor) -> Coins:
        return coins_from_rows(row_sums(rows, fused), rows.shape[-1], fused)

    if rows.requires_grad or fused.rows:
        return coins(rows)  # the backward pass makes its own blocks, and kernels need no blocks
    return Coins(*blockwise(coins, rows))


def _coins_of_class(rows: Tensor, index: Tensor) -> ClassCoins:
    """The coins of a given class of each row: two passes over the logits, one of them for the top."""
    index, fused, classes = check_target(index, rows.shape[:-1], "index"), decide(rows), rows.shape[-1]
    coins = _coins_of_top(rows, fused)
    pair = torch.stack([coins.prediction, index.clamp(0, classes - 1)], -1)
    top, own = widen(rows.gather(-1, pair)).unbind(-1)
    distance = _if_class(index, top - own, classes)
    return class_coins(coins, index, distance, own, standing(rows, index, fused), classes)


def _if_class(index: Tensor, number: Tensor, classes: int) -> Tensor:
    """The number where the index is a class, NaN elsewhere."""
    return torch.where((index >= 0) & (index < classes), number, torch.nan)
