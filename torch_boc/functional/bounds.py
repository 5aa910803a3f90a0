"""What the confidence alone already decides about the dominance."""

import torch
from torch import Tensor

from .checks import check_classes
from .precision import widen


def dominance_bounds(odds: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """The smallest and the largest dominance that `odds` against the prediction allow among `num_classes`.

    With R the odds, f = floor(R) and r = R - f, by convexity of u / (1 + u):

        lower = (C - 1) / (C - 1 + R)                     all rivals equal
        upper = 1 - (f/2 + r / (1 + r)) / (C - 1)         the rest on as few rivals as possible

    Args:
        odds: R = (1 - confidence) / confidence, any shape.
        num_classes: C, at least 2. For C = 2 both bounds are the confidence itself.

    Returns:
        (lower, upper), each with the shape and dtype of `odds`.

    >>> dominance_bounds(torch.tensor([1.0]), num_classes=4)  # confidence 1/2
    (tensor([0.7500]), tensor([0.8333]))
    """
    rivals = check_classes(num_classes) - 1.0
    wide = widen(odds)
    whole = wide.floor()
    rest = wide - whole
    lower = rivals / (rivals + wide)
    upper = 1 - (whole / 2 + rest / (1 + rest)) / rivals
    return lower.to(odds.dtype), upper.to(odds.dtype)


def forced_gap(odds: Tensor, num_classes: int) -> Tensor:
    """The part of the gap that confidence alone forces: the gap of evenly matched rivals.

    (1 - confidence) - loss_max = R (C - 2) / ((1 + R) (C - 1 + R)), which is 0 for C = 2.

    Args:
        odds: R = (1 - confidence) / confidence, any shape.
        num_classes: C, at least 2.

    Returns:
        A tensor with the shape and dtype of `odds`; the gap itself is never below it.

    >>> forced_gap(torch.tensor([1.0]), num_classes=4)
    tensor([0.2500])
    """
    rivals = check_classes(num_classes) - 1.0
    wide = widen(odds)
    return (wide * (rivals - 1.0) / ((1.0 + wide) * (rivals + wide))).to(odds.dtype)


def free_gap(odds: Tensor, concentration: Tensor, num_classes: int) -> Tensor:
    """The part of the gap that the geometry of the logits adds to what confidence forces: gap - forced_gap >= 0.

    It is the concentration times the width of the dominance bounds, so nothing cancels. `bag_of_coins` has it as
    `coins.free_gap`; this is for columns of numbers that were made before.

    Args:
        odds: R = (1 - confidence) / confidence, any shape.
        concentration: of the same shape, from `bag_of_coins`.
        num_classes: C, at least 2.

    Returns:
        A tensor with the shape and dtype of `odds`.

    >>> coins = bag_of_coins(torch.tensor([[2.0, 1.0, 0.0, -1.0]]))
    >>> coins.gap, forced_gap(coins.odds, 4), free_gap(coins.odds, coins.concentration, 4)
    (tensor([0.2109]), tensor([0.2004]), tensor([0.0105]))
    """
    wide = widen(odds)
    _, room = _even_and_room(wide, 1.0, 1.0, check_classes(num_classes) - 1.0)
    room = room.clamp_min(0.0)  # which rounding can make of a width of 0
    return (widen(concentration) * room / (num_classes - 1.0)).to(odds.dtype)


def concentration_and_free_gap(
    mass: Tensor, mass_squares: Tensor, flat: Tensor, num_classes: int
) -> tuple[Tensor, Tensor]:
    """Where the dominance lies between its bounds, in [0, 1], and how far it is above the lower one; C >= 3.

    With R the odds, Q = sum_j u_j^2 / (1 + u_j), f = floor(R), r = R - f and E = R^2 / (C - 1 + R):

        concentration = (Q - E) / (f/2 + r^2 / (1 + r) - E)        free_gap = (Q - E) / (C - 1)

    For the leads S and T of flat rows (see `spread.py`) the same with f = floor(S), r = S - f and
    E = S^2 / (2 (C - 1) - S):

        concentration = (T - E) / (f + r^2 / (2 - r) - E)          free_gap = (T - E) / (4 (C - 1))

    Both are 0 where the bounds coincide and leave nothing to place: all logits equal, or odds that are 0 or whose
    square is (below 1e-150).
    """
    rivals, lead = num_classes - 1.0, flat.to(mass.dtype)
    even, room = _even_and_room(mass, 1.0 + lead, 1.0 - 2.0 * lead, rivals)
    # `room <= ...` rather than its negation, so that a row of NaN stays NaN.
    empty = room <= 4 * torch.finfo(room.dtype).eps * even
    share = (mass_squares - even) / torch.where(empty, 1.0, room)
    share = torch.where(empty, 0.0, share.clamp(0.0, 1.0))
    return share, share * room * ((1.0 - 0.75 * lead) / rivals)


def _even_and_room(mass: Tensor, base: Tensor | float, sign: Tensor | float, rivals: float) -> tuple[Tensor, Tensor]:
    """The sum of squares of evenly matched rivals, and how much larger it is for as few rivals as possible.

    Base and sign are 1 for odds, 2 and -1 for leads.
    """
    whole = mass.floor()
    rest = mass - whole
    even = mass * mass / (rivals * base + sign * mass)
    return even, whole / (base + sign) + rest * rest / (base + sign * rest) - even
