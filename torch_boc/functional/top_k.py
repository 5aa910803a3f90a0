"""The coins from the few log-probabilities that an API returns, with certified bounds for what it leaves out."""

import math
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.blocks import blockwise
from ..core.coins import Coins, concentration_and_free_gap
from ..core.precision import widen
from .checks import check_classes

# How far the probabilities of a row may be from a sum of 1. Servers round what they return.
TOLERANCE = 0.02


class CoinBounds(NamedTuple):
    """Two results of the probe, between which the true one lies.

    Attributes:
        lower: the coins with the smallest possible loss. Their dominance, gap, concentration and free gap are the
            largest possible.
        upper: the coins with the largest possible loss.
    """

    lower: Coins
    upper: Coins


def coins_from_top_k(
    logprobs: Tensor, *, num_classes: int, index: Tensor | None = None, cap: Tensor | None = None
) -> CoinBounds:
    """Bounds of the coins from the k largest log-probabilities, as servers of language models return them.

    The classes that are left out have at most the smallest of the given probabilities each, and together what is left
    of 1. The loss of a coin is concave in u, so that it is largest if they share this evenly, and smallest if it is on
    as few of them as possible. With all classes given, both bounds are what `bag_of_coins` computes.

    Args:
        logprobs: shape (..., k), the logarithms of the k largest probabilities, in any order; not logits. A row may
            have fewer, with -inf in place of the others.
        num_classes: C, the size of the vocabulary, at least k.
        index: (...) in int64, the place among the k of the class that the coins are about, from 0 to k - 1; not a token
            id. By default it is the largest. For another class than the largest, concentration and free gap are NaN,
            because they are not defined. All numbers are NaN where there is no such place, for example -1.
        cap: (...), the logarithm of the largest probability that a class left out may have; by default the smallest
            given one. It is needed where a class outside of the k largest is given too, as servers add the emitted
            token: then it is the smallest of the k largest. It is 0 where nothing is known; concentration and free gap
            are NaN if a class left out may then be the largest.

    Returns:
        Bounds in float64 (float32 on MPS). `prediction` is a place among the k. They hold up to the rounding of what
        is given: 1 - 1e-9 is 0 as a float32 logarithm, and then the odds are those of the given rivals alone. All
        numbers of a row are NaN if its values cannot be log-probabilities of the k likeliest classes: those given have
        more than 1.02 together, or less than 0.98 together with the most that the others may have.

    >>> logits = torch.tensor([[2.0, 1.0, 0.5, 0.0, -1.0]])
    >>> lower, upper = coins_from_top_k(logits.log_softmax(-1)[:, :2], num_classes=5)
    >>> lower.loss, bag_of_coins(logits).loss, upper.loss
    (tensor([0.1442], dtype=torch.float64), tensor([0.1545]), tensor([0.1571], dtype=torch.float64))
    """
    if not isinstance(logprobs, Tensor) or not logprobs.is_floating_point():
        kind = getattr(logprobs, "dtype", type(logprobs).__name__)
        raise TypeError(f"expected logprobs as a floating-point tensor, got {kind}; use torch.tensor(logprobs)")
    if not 1 <= (logprobs.shape[-1] if logprobs.ndim else 0) <= check_classes(num_classes):
        got = f"shape {tuple(logprobs.shape)}"
        raise ValueError(f"expected 1 to {num_classes} log-probabilities on the last axis, got {got}")
    shape, place = tuple(logprobs.shape[:-1]), logprobs.argmax(-1) if index is None else index
    if place.shape != shape or place.dtype != torch.int64:
        raise ValueError(f"expected index in int64 of shape {shape}, got {place.dtype} of shape {tuple(place.shape)}")
    if cap is not None and (cap.shape != shape or not cap.is_floating_point()):
        raise ValueError(f"expected cap as floats of shape {shape}, got {cap.dtype} of shape {tuple(cap.shape)}")
    caps = [] if cap is None else [cap.unsqueeze(-1)]
    odds, top, *ends = blockwise(partial(_sums, num_classes), logprobs, place.unsqueeze(-1), *caps)
    known = (place, odds, top, num_classes)
    return CoinBounds(_coins(*known, ends[0], ends[1]), _coins(*known, ends[2], ends[3]))


def _sums(num_classes: int, logprobs: Tensor, place: Tensor, cap: Tensor | None = None) -> tuple[Tensor, ...]:
    """The odds, whether the class is the top, and lost coins and Q if the rest is on few classes, and if it is even.

    The lost coins are summed for themselves, because odds - Q cancels for a class that is far from the top.
    """
    values = widen(logprobs)
    place, outside = place.clamp(0, values.shape[-1] - 1), (place < 0) | (place >= values.shape[-1])
    given, own = values > -math.inf, values.gather(-1, place).masked_fill(outside, math.nan)
    least = torch.where(given, values, math.inf).amin(-1, keepdim=True) if cap is None else widen(cap)
    relative = (values - own).exp().scatter(-1, place, 0.0)  # u of the rivals that are given
    losses = _lost(relative)
    seen, lost, squares = relative.sum(-1), losses.sum(-1), (losses * relative).sum(-1)
    unseen = num_classes - widen(given.sum(-1))
    room = unseen * least.exp().squeeze(-1)  # the most that those left out may have
    total = (1.0 + seen) * own.exp().squeeze(-1)  # inf * 0 is NaN, far below the top: this says nothing
    seen = seen.masked_fill((total > 1.0 + TOLERANCE) | (total + room < 1.0 - TOLERANCE), math.nan)
    most = (least - own).exp().squeeze(-1)  # the largest u of those left out
    rest = (torch.expm1(-own.squeeze(-1)) - seen).clamp_min(0.0).minimum(unseen * most)
    full = (rest / most.masked_fill(most == 0, 1.0)).floor().minimum(unseen)  # so many have the largest u
    last, share = (rest - full * most).clamp_min(0.0), rest / unseen.clamp_min(1.0)
    top = (own >= values.amax(-1, keepdim=True)).squeeze(-1) & (most.minimum(rest) <= 1.0)
    most_lost, last_lost, share_lost = _lost(most), _lost(last), _lost(share)
    few = lost + full * most_lost + last_lost, squares + full * most * most_lost + last * last_lost
    even = lost + unseen * share_lost, squares + unseen * share * share_lost
    return seen + rest, top, *few, *even


def _lost(u: Tensor) -> Tensor:
    """The coin that is lost to a rival: u / (1 + u)."""
    return (1.0 + u.reciprocal()).reciprocal()


def _coins(place: Tensor, odds: Tensor, top: Tensor, num_classes: int, lost: Tensor, squares: Tensor) -> Coins:
    loss = lost / (num_classes - 1.0)
    if num_classes == 2:
        share = free = torch.zeros_like(odds)
    else:
        share, free = concentration_and_free_gap(odds, squares, torch.zeros_like(top), num_classes)
    return Coins(place, odds, loss, torch.where(top, share, math.nan), torch.where(top, free, math.nan))
