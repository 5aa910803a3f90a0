"""The probe's result, and how it follows from the sums of each row."""

from typing import NamedTuple

from torch import Tensor

from .bounds import concentration_and_free_gap
from .rows import Rows
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
        """The coherence gap, dominance - confidence, without cancellation; never negative, and 0 for two classes."""
        return gap_of(self.odds, self.loss)

    @property
    def forced_gap(self) -> Tensor:
        """The part of the gap that the confidence alone forces, gap - free_gap: the gap of evenly matched rivals."""
        return gap_of(self.odds, self.loss) - self.free_gap


def gap_of(odds: Tensor, loss: Tensor) -> Tensor:
    """The coherence gap R / (1 + R) - loss; see `Coins.gap`."""
    return odds / (1.0 + odds) - loss


def coins_by_formula(rows: Rows, num_classes: int) -> Coins:
    """Coins from the sums of each row, by torch's operations."""
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
