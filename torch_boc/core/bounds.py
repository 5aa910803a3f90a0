"""Where the dominance lies between the bounds that the confidence forces."""

import math

import torch
from torch import Tensor


def concentration_and_free_gap(
    mass: Tensor, mass_squares: Tensor, flat: Tensor, num_classes: int
) -> tuple[Tensor, Tensor]:
    """Where the dominance lies between its bounds, in [0, 1], and how far it is above the lower bound; C >= 3.

    With R the odds, Q = sum_j u_j^2 / (1 + u_j), f = floor(R), r = R - f and E = R^2 / (C - 1 + R):

        concentration = (Q - E) / (f/2 + r^2 / (1 + r) - E)        free_gap = (Q - E) / (C - 1)

    For flat rows, the leads S and T are used (see `spread.py`), with f = floor(S), r = S - f and
    E = S^2 / (2 (C - 1) - S):

        concentration = (T - E) / (f + r^2 / (2 - r) - E)          free_gap = (T - E) / (4 (C - 1))

    Both are 0 where the two bounds are equal. This happens if all logits are equal, or if the odds are below 1e-150,
    so that their square underflows.
    """
    rivals, lead = num_classes - 1.0, flat.to(mass.dtype)
    even, room, scale = even_and_room(mass, lead, rivals)
    # `room <= ...` is False for NaN, so that a row of NaN stays NaN. A number divided by infinity is 0.
    empty = room <= 4 * torch.finfo(room.dtype).eps * even
    share = ((mass_squares - even) / room.masked_fill(empty, math.inf)).clamp(0.0, 1.0)
    return share, share * room / scale


def even_and_room(mass: Tensor, lead: Tensor, rivals: float) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of squares of evenly matched rivals, how much larger it is with the fewest possible rivals, and a scale.

    `lead` is 0 where the mass is the sum of the odds, and 1 where it is the sum of the leads. The free gap is the
    difference between a sum of squares and the even one, divided by the scale, which is C - 1 or 4 (C - 1).
    """
    base, sign = 1.0 + lead, torch.rsub(lead, 1.0, alpha=2.0)  # 1 and 1 for odds, 2 and -1 for leads
    whole, scaled = mass.floor(), base * rivals
    rest = mass - whole
    even = mass * mass / torch.addcmul(scaled, sign, mass)
    last = rest * rest / torch.addcmul(base, sign, rest)
    return even, torch.addcmul(last, whole, base, value=0.5) - even, base * scaled
