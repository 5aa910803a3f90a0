"""Count samples in bins, or add up their numbers in bins."""

import torch
from torch import Tensor


def count(place: Tensor, weight: Tensor, bins: int) -> Tensor:
    """Add up `weight` in bins along the last axis. `place` is the bin of each weight; booleans are summed in int64."""
    weight = weight.long() if weight.dtype == torch.bool else weight
    return weight.new_zeros(*weight.shape[:-1], bins).scatter_add(-1, place, weight)


def equal_bin(score: Tensor, bins: int, *, has_nan: bool = True) -> Tensor:
    """The bin of each score in [0, 1], for bins of equal width. They are closed on the right: 1 is in the last bin."""
    return as_place((score * bins).ceil() - 1.0, bins, has_nan=has_nan)


def as_place(number: Tensor, bins: int, *, has_nan: bool = True) -> Tensor:
    """The numbers as bin indices, clamped to the first and the last bin; NaN is put into bin 0.

    With `has_nan=False` the numbers must not contain NaN, which would become an index outside of the bins.
    """
    return (number.nan_to_num(0.0) if has_nan else number).clamp(0, bins - 1).long()
