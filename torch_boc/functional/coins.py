"""The probe itself: one bag of coins per row of logits."""

from torch import Tensor

from ..core.blocks import blockwise
from ..core.coins import Coins
from ..kernels.dtensors import is_distributed
from . import whole
from .checks import classes_last
from .paths import coins_from_rows, decide, row_sums
from .shards import own_part, shared_sums

__all__ = ["Coins", "bag_of_coins"]


def bag_of_coins(logits: Tensor, *, dim: int = -1) -> Coins:
    """Probe whether the confidence of each prediction agrees with the geometry of its logits.

    With u_j = exp(z_j - z_top) over the C - 1 rivals of the top class, and R and Q the sums of u_j and u_j^2/(1 + u_j):

        odds = R        loss = (R - Q) / (C - 1)        gap = R / (1 + R) - loss

    Args:
        logits: shape (..., C), on any device and of any floating dtype; log-probabilities work as well. float16 and
            bfloat16 are computed in float32. A row with NaN or +inf gives NaN, and its prediction is that of
            torch.argmax. A class with -inf always loses. A DTensor gives plain tensors of the rows that this process
            holds. If the classes are sharded, all processes that share them must call this function. They exchange a
            few numbers per row, but no logits, and all get the same numbers; there is no gradient.
        dim: the class axis; by default the last, so that logits of shape (N, T, C) have their C classes there.

    Returns:
        Coins, each field with the shape of `logits` without `dim`. If several classes have the largest logit, the
        prediction is the first of them. For C = 2 the gap is exactly 0: there is one coin, and its chance is the
        confidence. The concentration of float32 logits has an error of at most 2e-6, even if the logits are nearly
        equal. It is 0 if the two bounds of the dominance are equal.

    >>> coins = bag_of_coins(torch.tensor([[2.0, 1.0, 0.0, -1.0]]))
    >>> coins.prediction, coins.confidence, coins.dominance, coins.gap
    (tensor([0]), tensor([0.6439]), tensor([0.8548]), tensor([0.2109]))
    """
    rows = classes_last(logits, dim)
    if is_distributed(rows):
        part = own_part(rows)
        if part.group is None:
            return bag_of_coins(part.rows)
        sums, _ = shared_sums(part)
        return coins_from_rows(sums, part.classes, decide(sums.odds))
    fused = decide(rows)
    found = whole.coins_of(rows, fused)
    if found is not None:
        return found

    def coins(rows: Tensor) -> Coins:
        return coins_from_rows(row_sums(rows, fused), rows.shape[-1], fused)

    if logits.requires_grad or fused.rows:
        return coins(rows)  # the backward pass makes its own blocks, and kernels need no blocks
    return Coins(*blockwise(coins, rows))
