"""The first launches of the tallies and of the columns, and what both require of their arguments."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from .launch import launch_rows, launch_spread

# The rows of a block; each thread takes one row.
BLOCK, WARPS = 128, 4
OPTIONS = {"block": BLOCK, "num_warps": WARPS, "enable_fp_fusion": False}  # roundings as in torch


class Sums(NamedTuple):
    """The sums of each row; mass and mass_squares only if asked for, and only for three or more classes.

    `log_rest` is the log of the odds, which does not underflow.
    """

    prediction: Tensor
    top: Tensor
    odds: Tensor
    squares: Tensor
    mass: Tensor | None
    mass_squares: Tensor | None
    surprise: Tensor | None
    margin: Tensor | None
    log_rest: Tensor | None = None


def row_sums(logits: Tensor, *, spread: bool, extras: bool = False, log_rest: bool = False) -> Sums:
    """The sums of each row in one launch, two with those for the concentration or the log of the odds.

    If rows are split, it takes three launches, or five.
    """
    prediction, top, odds, squares, *more = launch_rows(logits, extras)
    mass = mass_squares = surprise = margin = rest = None
    if log_rest:
        rest = squares.new_empty(squares.shape)
    if (spread and logits.shape[-1] > 2) or log_rest:
        mass, mass_squares = launch_spread(logits, top, odds, squares, rest)
    if extras:
        surprise, margin = more
    return Sums(prediction, top, odds, squares, mass, mass_squares, surprise, margin, rest)


def flat(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.reshape(-1).contiguous()


def check_states(states: Sequence[Tensor]) -> None:
    """Raise unless all states are contiguous and on one device. Kernels get pointers, and cannot check this."""
    if not all(x.is_contiguous() and x.device == states[0].device for x in states):
        got = ", ".join(f"strides {x.stride()} on {x.device}" for x in states)
        raise ValueError(f"expected contiguous states on one device, got {got}")
