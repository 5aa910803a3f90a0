"""The probe itself: one bag of coins per row of logits."""

from typing import NamedTuple

from torch import Tensor

from .blocks import blockwise
from .bounds import concentration_and_free_gap
from .checks import check_logits
from .rows import Rows, row_sums
from .spread import is_flat


class Coins(NamedTuple):
    """The probe's result for each row of logits, without the class axis.

    Attributes:
        prediction: the top class, int64.
        odds: the odds against it, R = (1 - confidence) / confidence.
        loss: the chance that it loses one coin flip, 1 - dominance.
        concentration: where the dominance lies between the bounds that the confidence forces, in [0, 1].
        free_gap: the part of the gap that the geometry of the logits adds to what the confidence forces.
    """

    prediction: Tensor
    odds: Tensor
    loss: Tensor
    concentration: Tensor
    free_gap: Tensor

    @property
    def confidence(self) -> Tensor:
        """The largest softmax probability, 1 / (1 + odds)."""
        return (1.0 + self.odds).reciprocal()

    @property
    def dominance(self) -> Tensor:
        """The mean chance that the top class beats a rival, 1 - loss; the paper's c_BoC."""
        return 1.0 - self.loss

    @property
    def gap(self) -> Tensor:
        """The coherence gap, dominance - confidence, without its cancellation; never negative, 0 for two classes."""
        return gap_of(self.odds, self.loss)

    @property
    def forced_gap(self) -> Tensor:
        """The part of the gap that the confidence alone forces, gap - free_gap: the gap of evenly matched rivals."""
        return gap_of(self.odds, self.loss) - self.free_gap


def gap_of(odds: Tensor, loss: Tensor) -> Tensor:
    """The coherence gap R / (1 + R) - loss; see `Coins.gap`."""
    return odds / (1.0 + odds) - loss


def bag_of_coins(logits: Tensor, *, dim: int = -1) -> Coins:
    """Probe whether the confidence of each prediction agrees with the geometry of its logits.

    With u_j = exp(z_j - z_top) over the C - 1 rivals of the top class, and R and Q the sums of u_j and u_j^2/(1 + u_j):

        odds = R        loss = (R - Q) / (C - 1)        gap = R / (1 + R) - loss

    Args:
        logits: shape (..., C), any device and floating dtype; log-probabilities serve as well. float16 and bfloat16
            are computed in float32. A row with NaN or +inf gives NaN in that row, whose prediction is that of
            torch.argmax; -inf is a class that always loses.
        dim: the class axis.

    Returns:
        Coins, each field with the shape of `logits` without `dim`. The prediction is the first of several equal tops.
        For C = 2 the gap is exactly 0: two classes have one coin, and its chance is the confidence. The concentration
        of float32 logits is right to 2e-6, also of logits that nearly tie; it is 0 where there is nothing to place.

    >>> coins = bag_of_coins(torch.tensor([[2.0, 1.0, 0.0, -1.0]]))
    >>> coins.prediction, coins.confidence, coins.dominance, coins.gap
    (tensor([0]), tensor([0.6439]), tensor([0.8548]), tensor([0.2109]))
    """
    dim = check_logits(logits, dim)

    def coins(rows: Tensor) -> Coins:
        return coins_from_rows(row_sums(rows), rows.shape[-1])

    from .. import kernels  # here, for they are built on this layer

    rows = logits.movedim(dim, -1)
    if logits.requires_grad or kernels.choice.fuse_rows(rows):
        return coins(rows)  # backward works in blocks, and kernels need none
    return Coins(*blockwise(coins, rows))


def coins_from_rows(rows: Rows, num_classes: int) -> Coins:
    """Coins from the sums of each row."""
    from .. import kernels  # here, for they are built on this layer

    if kernels.choice.fuse_coins(rows.odds, num_classes):
        spread = (rows.mass, rows.mass_squares)
        return Coins(rows.prediction, rows.odds, *kernels.coins(rows.odds, rows.squares, *spread, num_classes))
    return coins_by_formula(rows, num_classes)


def coins_by_formula(rows: Rows, num_classes: int) -> Coins:
    """Coins from the sums of each row, by torch's operations whatever path was chosen."""
    odds = rows.odds
    if num_classes == 2:  # one rival: its loss is 1 - confidence to the last bit, so that the gap is 0
        nothing = odds * 0.0
        return Coins(rows.prediction, odds, odds / (1.0 + odds), nothing, nothing)
    assert rows.mass is not None
    assert rows.mass_squares is not None
    loss = (odds - rows.squares.to(odds.dtype)) / (num_classes - 1.0)
    flat = is_flat(odds, num_classes)
    placed = concentration_and_free_gap(rows.mass, rows.mass_squares, flat, num_classes)
    return Coins(rows.prediction, odds, loss, *(x.to(odds.dtype) for x in placed))
