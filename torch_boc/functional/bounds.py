"""What the confidence already decides about the dominance."""

from torch import Tensor

from ..core.dtypes import to_wide
from .checks import check_classes


def dominance_bounds(odds: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """The smallest and the largest dominance that `odds` against the prediction allow among `num_classes`.

    With R the odds, f = floor(R) and r = R - f, by convexity of u / (1 + u):

        lower = (C - 1) / (C - 1 + R)                     all rivals equal
        upper = 1 - (f/2 + r / (1 + r)) / (C - 1)         all the odds on as few rivals as possible

    Args:
        odds: R = (1 - confidence) / confidence, any shape.
        num_classes: C, at least 2. For C = 2 both bounds are the confidence itself.

    Returns:
        (lower, upper), each with the shape and dtype of `odds`.

    >>> dominance_bounds(torch.tensor([1.0]), num_classes=4)  # confidence 1/2
    (tensor([0.7500]), tensor([0.8333]))
    """
    rivals = check_classes(num_classes) - 1.0
    wide = to_wide(odds)
    whole = wide.floor()
    rest = wide - whole
    lower = rivals / (rivals + wide)
    upper = 1 - (whole / 2 + rest / (1 + rest)) / rivals
    return lower.to(odds.dtype), upper.to(odds.dtype)


def forced_gap(odds: Tensor, num_classes: int) -> Tensor:
    """The part of the gap that the confidence forces: the gap of evenly matched rivals.

    (1 - confidence) - loss_max = R (C - 2) / ((1 + R) (C - 1 + R)), which is 0 for C = 2.

    Args:
        odds: R = (1 - confidence) / confidence, any shape.
        num_classes: C, at least 2.

    Returns:
        A tensor with the shape and dtype of `odds`. The gap is never smaller than this.

    >>> forced_gap(torch.tensor([1.0]), num_classes=4)
    tensor([0.2500])
    """
    rivals = check_classes(num_classes) - 1.0
    wide = to_wide(odds)
    return (wide * (rivals - 1.0) / ((1.0 + wide) * (rivals + wide))).to(odds.dtype)
