"""Samples counted, or their numbers added up, in bins."""

import torch
from torch import Tensor


def count(place: Tensor, weight: Tensor, bins: int) -> Tensor:
    """The sum of `weight` (int64 for booleans) in each of `bins` bins of the last axis; `place` is each one's bin."""
    weight = weight.long() if weight.dtype == torch.bool else weight
    return weight.new_zeros(*weight.shape[:-1], bins).scatter_add(-1, place, weight)


def equal_bin(score: Tensor, bins: int, *, has_nan: bool = True) -> Tensor:
    """The bin of each score among equal ones on [0, 1]; they are closed on the right, so that 1 is in the last."""
    return as_place((score * bins).ceil() - 1.0, bins, has_nan=has_nan)


def as_place(number: Tensor, bins: int, *, has_nan: bool = True) -> Tensor:
    """The bin of that number, or the nearest; 0 for NaN, which no integer stands for and which must not come if not
    `has_nan`: it would be a place outside of the bins.
    """
    return (number.nan_to_num(0.0) if has_nan else number).clamp(0, bins - 1).long()
