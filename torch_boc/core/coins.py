"""The probe's result, and how it follows from the sums of each row."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .dtypes import to_wide
from .row_sums import RowSums, is_flat

# exp of this, times the largest number of classes, is still a float64.
LARGEST_DISTANCE = 690.0


class Coins(NamedTuple):
    """The probe's result for each row of logits, without the class axis: about its top class, or about a given one.

    Attributes:
        prediction: the top class, or the given class, int64.
        odds: the odds against it, (1 - p) / p for its probability p. Those of a given class can be very large: beyond
            the range of their dtype, they are the largest number of this dtype.
        loss: the chance that it loses one coin flip, 1 - dominance. It is NaN for a given class whose logit is -inf,
            because two such classes have no coin.
        concentration: where the dominance lies between the bounds that the confidence forces, in [0, 1]. It is NaN for
            a given class that has not the largest logit: the upper bound is known only for a class that no rival
            exceeds.
        free_gap: the part of the gap that the geometry of the logits adds to what the confidence forces; NaN where the
            concentration is.
        log_probability: of a given class: the logarithm of its probability, even if that underflows. None without a
            given class.
        rank: of a given class: the number of classes with a larger logit, plus 1, int64; 0 where the row or the class
            is undefined. None without a given class.
    """

    prediction: Tensor
    odds: Tensor
    loss: Tensor
    concentration: Tensor
    free_gap: Tensor
    log_probability: Tensor | None = None
    rank: Tensor | None = None

    @property
    def confidence(self) -> Tensor:
        """The probability of the class, 1 / (1 + odds); for the top this is the largest softmax probability."""
        return (1.0 + self.odds).reciprocal()

    @property
    def dominance(self) -> Tensor:
        """The mean chance that the class beats a rival, 1 - loss; the paper's c_BoC."""
        return 1.0 - self.loss

    @property
    def gap(self) -> Tensor:
        """The coherence gap, dominance - confidence, without cancellation; never negative, and 0 for two classes."""
        return gap_of(self.odds, self.loss)

    @property
    def forced_gap(self) -> Tensor:
        """The part of the gap that confidence forces, gap - free_gap: the gap of evenly matched rivals."""
        return gap_of(self.odds, self.loss) - self.free_gap


def gap_of(odds: Tensor, loss: Tensor) -> Tensor:
    """The coherence gap R / (1 + R) - loss; see `Coins.gap`."""
    return odds / (1.0 + odds) - loss


def gap_of_sums(odds: Tensor, squares: Tensor, num_classes: int) -> Tensor:
    """The coherence gap of each row, in float64 (float32 on MPS); exactly 0 for two classes."""
    odds = to_wide(odds)
    return odds * 0.0 if num_classes == 2 else gap_of(odds, (odds - squares) / (num_classes - 1.0)).clamp_min(0.0)


def coins_of_sums(rows: RowSums, num_classes: int) -> Coins:
    """Coins from the sums of each row, in the dtype of the odds."""
    odds = rows.odds
    if num_classes == 2:  # one rival: its loss is 1 - confidence to the last bit, so that the gap is 0
        nothing = odds * 0.0
        return Coins(rows.prediction, odds, odds / (1.0 + odds), nothing, nothing)
    loss = (odds - rows.squares.to(odds.dtype)) / (num_classes - 1.0)
    flat = is_flat(odds, num_classes)
    placed = concentration_and_free_gap(rows.mass, rows.mass_squares, flat, num_classes)
    return Coins(rows.prediction, odds, loss, *(x.to(odds.dtype) for x in placed))


def concentration_and_free_gap(
    mass: Tensor, mass_squares: Tensor, flat: Tensor, num_classes: int
) -> tuple[Tensor, Tensor]:
    """Where the dominance lies between its bounds, in [0, 1], and how far it is above the lower bound; C >= 3.

    With R the odds, Q = sum_j u_j^2 / (1 + u_j), f = floor(R), r = R - f and E = R^2 / (C - 1 + R):

        concentration = (Q - E) / (f/2 + r^2 / (1 + r) - E)        free_gap = (Q - E) / (C - 1)

    For flat rows, the leads S and T are used (see `row_sums.py`), with f = floor(S), r = S - f and
    E = S^2 / (2 (C - 1) - S):

        concentration = (T - E) / (f + r^2 / (2 - r) - E)          free_gap = (T - E) / (4 (C - 1))

    Both are 0 where the two bounds are equal. This happens if all logits are equal, or if the odds are below 1e-150,
    whose square underflows.
    """
    rivals, base = num_classes - 1.0, flat.to(mass.dtype) + 1.0
    sign = torch.rsub(base, 3.0, alpha=2.0)  # 1 for odds, -1 for leads
    whole, scaled = mass.floor(), base * rivals
    rest = mass - whole
    even = mass * mass / torch.addcmul(scaled, sign, mass)
    last = rest * rest / torch.addcmul(base, sign, rest)
    room = torch.addcmul(last, whole, base, value=0.5) - even
    # `room <= ...` is False for NaN, so that a row of NaN stays NaN. A number divided by infinity is 0.
    empty = room <= 4 * torch.finfo(room.dtype).eps * even
    share = ((mass_squares - even) / room.masked_fill(empty, math.inf)).clamp(0.0, 1.0)
    return share, share * room / (base * scaled)


def coins_of_class(
    coins: Coins, index: Tensor, distance: Tensor, lost: Tensor, ahead: Tensor, num_classes: int
) -> Coins:
    """The coins of a given class from those of the top.

    With d the distance of its logit below the top, its odds are R exp(d) + exp(d) - 1, in which nothing cancels, and
    its log-probability is -d - log(1 + R).

    Args:
        coins: those of the top class.
        index: the given class.
        distance: how far its logit is below the top, in float64; any number if it is no class.
        lost: how many of its C - 1 coin flips it is expected to lose.
        ahead: how many logits are larger.
        num_classes: C.
    """
    dtype, rest = coins.odds.dtype, to_wide(coins.odds)
    distance = torch.where((index >= 0) & (index < num_classes), distance, torch.nan)
    undefined = (rest - rest) + (distance - distance)  # NaN if the row or the class is undefined
    near = distance.clamp_max(LARGEST_DISTANCE)
    odds = (rest * near.exp() + near.expm1()).clamp_max(torch.finfo(dtype).max).to(dtype)
    top = distance == 0.0
    if num_classes == 2:
        loss = odds / (1.0 + odds)
    else:
        loss = torch.where(top, coins.loss, (lost / (num_classes - 1.0)).to(dtype))
    nan = torch.full_like(loss, torch.nan)
    return Coins(
        index,
        odds,
        loss + undefined.to(dtype),
        torch.where(top, coins.concentration, nan),
        torch.where(top, coins.free_gap, nan),
        (-distance - rest.log1p()).to(dtype),
        torch.where(undefined == 0.0, ahead + 1, 0),
    )
