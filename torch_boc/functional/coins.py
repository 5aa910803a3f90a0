"""The probe itself: one bag of coins per row of logits."""

import torch
from torch import Tensor

from ..core.coins import Coins, coins_of_class
from ..core.schema import COINS
from ..kernels.dispatch import columns
from .checks import check_target, classes_last


def bag_of_coins(logits: Tensor, *, dim: int = -1, index: Tensor | None = None) -> Coins:
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
        Coins, each field with the shape of `logits` without `dim`. With `index`, they have the `log_probability` and
        the `rank` of the class as well. Their concentration and free gap are NaN for a class that has not the largest
        logit, because the bounds of the dominance are known only for the top. A class with a logit of -inf has a loss
        of NaN, because two such classes have no coin.

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
    if index is None:
        coins = Coins(**columns(rows, COINS, keep_dtype=True))
        if torch._C._are_functorch_transforms_active():  # transforms such as vmap return tensors only, not None
            first = (coins.odds == coins.odds).long()
            coins = coins._replace(log_probability=-coins.odds.log1p(), rank=first)
        return coins
    index = check_target(index, rows.shape[:-1], "index")
    numbers = columns(rows, (*COINS, "distance", "lost", "ahead"), index, keep_dtype=True)
    given = numbers.pop("distance"), numbers.pop("lost"), numbers.pop("ahead")
    return coins_of_class(Coins(**numbers), index, *given, rows.shape[-1])
