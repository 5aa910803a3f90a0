"""The probe itself: one bag of coins per row of logits."""

from torch import Tensor

from ..core.blocks import blockwise
from ..core.coins import Coins
from ..kernels.dtensors import is_distributed
from .checks import check_logits
from .paths import coins_from_rows, decide, row_sums
from .shards import own_part, shared_sums

__all__ = ["Coins", "bag_of_coins"]


def bag_of_coins(logits: Tensor, *, dim: int = -1) -> Coins:
    """Probe whether the confidence of each prediction agrees with the geometry of its logits.

    With u_j = exp(z_j - z_top) over the C - 1 rivals of the top class, and R and Q the sums of u_j and u_j^2/(1 + u_j):

        odds = R        loss = (R - Q) / (C - 1)        gap = R / (1 + R) - loss

    Args:
        logits: shape (..., C), any device and floating dtype; log-probabilities serve as well. float16 and bfloat16
            are computed in float32. A row with NaN or +inf gives NaN in that row, whose prediction is that of
            torch.argmax; -inf is a class that always loses. A DTensor gives plain tensors of the rows that this process
            holds. Where the classes are sharded, all processes that share them must call, and get the same numbers: a
            few numbers a row are exchanged, no logits, and there is no gradient.
        dim: the class axis; by default the last, so that logits of shape (N, T, C) have their C classes there.

    Returns:
        Coins, each field with the shape of `logits` without `dim`. The prediction is the first of several equal tops.
        For C = 2 the gap is exactly 0: two classes have one coin, and its chance is the confidence. The concentration
        of float32 logits is right to 2e-6, also of logits that nearly tie; it is 0 where there is nothing to place.

    >>> coins = bag_of_coins(torch.tensor([[2.0, 1.0, 0.0, -1.0]]))
    >>> coins.prediction, coins.confidence, coins.dominance, coins.gap
    (tensor([0]), tensor([0.6439]), tensor([0.8548]), tensor([0.2109]))
    """
    dim = check_logits(logits, dim)
    rows = logits.movedim(dim, -1)
    if is_distributed(rows):
        part = own_part(rows)
        if part.group is None:
            return bag_of_coins(part.rows)
        sums, _ = shared_sums(part)
        return coins_from_rows(sums, part.classes, decide(sums.odds))
    fused = decide(rows)

    def coins(rows: Tensor) -> Coins:
        return coins_from_rows(row_sums(rows, fused), rows.shape[-1], fused)

    if logits.requires_grad or fused.rows:
        return coins(rows)  # backward works in blocks, and kernels need none
    return Coins(*blockwise(coins, rows))
