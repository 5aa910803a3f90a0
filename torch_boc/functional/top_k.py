"""The coins from the few log-probabilities that an API returns, with certified bounds for what it leaves out."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.blocks import blockwise
from ..core.bounds import concentration_and_free_gap
from ..core.coins import Coins
from ..core.precision import widen
from .checks import check_classes


class CoinBounds(NamedTuple):
    """Two results of the probe, between which the true one lies.

    Attributes:
        lower: the coins with the smallest possible loss. Their dominance, gap, concentration and free gap are the
            largest possible.
        upper: the coins with the largest possible loss.
    """

    lower: Coins
    upper: Coins


def coins_from_top_k(logprobs: Tensor, *, num_classes: int, index: Tensor | None = None) -> CoinBounds:
    """Bounds of the coins from the k largest log-probabilities, as servers of language models return them.

    The classes that are left out have at most the smallest of the given probabilities each, and together what is left
    of 1. The loss of a coin is concave in u, so that it is largest if they share this evenly, and smallest if it is on
    as few of them as possible. With all classes given, both bounds are what `bag_of_coins` computes.

    Args:
        logprobs: shape (..., k), the logarithms of the k largest probabilities, in any order; not logits. A row may
            have fewer, with -inf in place of the others.
        num_classes: C, the size of the vocabulary, at least k.
        index: (...) in int64, the place among the k of the class that the coins are about; by default the largest. For
            another class than the largest, concentration and free gap are NaN, because they are not defined.

    Returns:
        Bounds in float64 (float32 on MPS). `prediction` is a place among the k. They hold up to the rounding of what
        is given: 1 - 1e-9 is 0 as a float32 logarithm, and then the odds are those of the given rivals alone.

    >>> logits = torch.tensor([[2.0, 1.0, 0.5, 0.0, -1.0]])
    >>> lower, upper = coins_from_top_k(logits.log_softmax(-1)[:, :2], num_classes=5)
    >>> lower.loss, bag_of_coins(logits).loss, upper.loss
    (tensor([0.1442], dtype=torch.float64), tensor([0.1545]), tensor([0.1571], dtype=torch.float64))
    """
    values, place = _check(logprobs, num_classes, index)
    odds, few, even, top = blockwise(lambda x, own: _sums(widen(x), own, num_classes), values, place)
    ends = (_coins(place.squeeze(-1), odds, squares, num_classes, top) for squares in (few, even))
    return CoinBounds(*ends)


def _sums(values: Tensor, place: Tensor, num_classes: int) -> tuple[Tensor, ...]:
    """The odds, Q if the rest is on few classes, Q if they share it evenly, and whether the class is the top."""
    given, own = values > -math.inf, values.gather(-1, place)
    relative = (values - own).exp().scatter(-1, place, 0.0)  # u of the rivals that are given
    seen, squares = relative.sum(-1), _square(relative).sum(-1)
    unseen = num_classes - widen(given.sum(-1))
    cap = (torch.where(given, values, math.inf).amin(-1) - own.squeeze(-1)).exp()  # the largest u of those left out
    rest = (torch.expm1(-own.squeeze(-1)) - seen).clamp_min(0.0).minimum(unseen * cap)
    most = (rest / cap).floor().minimum(unseen)
    few = most * _square(cap) + _square((rest - most * cap).clamp_min(0.0))
    even = unseen.clamp_min(1.0) * _square(rest / unseen.clamp_min(1.0))
    top = own.squeeze(-1) >= values.amax(-1)
    return seen + rest, squares + few, squares + even, top


def _square(u: Tensor) -> Tensor:
    """The part of Q of a rival: u^2 / (1 + u)."""
    return u * u / (1.0 + u)


def _coins(place: Tensor, odds: Tensor, squares: Tensor, num_classes: int, top: Tensor) -> Coins:
    loss = (odds - squares) / (num_classes - 1.0)
    if num_classes == 2:
        share = free = torch.zeros_like(odds)
    else:
        share, free = concentration_and_free_gap(odds, squares, torch.zeros_like(top), num_classes)
    return Coins(place, odds, loss, torch.where(top, share, math.nan), torch.where(top, free, math.nan))


def _check(logprobs: Tensor, num_classes: int, index: Tensor | None) -> tuple[Tensor, Tensor]:
    """The log-probabilities, and the place of the class in question with an axis of its own; or raise."""
    if not isinstance(logprobs, Tensor) or not logprobs.is_floating_point():
        kind = getattr(logprobs, "dtype", type(logprobs).__name__)
        raise TypeError(f"expected logprobs as a floating-point tensor, got {kind}; use torch.tensor(logprobs)")
    given = logprobs.shape[-1] if logprobs.ndim else 0
    if not 1 <= given <= check_classes(num_classes):
        got = f"shape {tuple(logprobs.shape)}"
        raise ValueError(f"expected 1 to {num_classes} log-probabilities on the last axis, got {got}")
    if index is None:
        return logprobs, logprobs.argmax(-1, keepdim=True)
    if index.shape != logprobs.shape[:-1] or index.dtype != torch.int64:
        shape = tuple(logprobs.shape[:-1])
        raise ValueError(f"expected index in int64 of shape {shape}, got {index.dtype} of shape {tuple(index.shape)}")
    return logprobs, index.unsqueeze(-1)
