"""Calls that one kernel computes as a whole.

The kernel is called directly, or as an operator of torch if a mode, a tracer or the compiler must see the call. Each
function returns the result, or True, if a kernel has computed it. If it returns None or False, the caller computes the
result from the parts in `paths.py`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import kernels
from ..core.coins import Coins
from ..kernels.cpu import calls
from .paths import Fused

Numbers = tuple[Tensor | None, ...]


def coins_of(rows: Tensor, fused: Fused) -> Coins | None:
    """The coins of each row."""
    if fused.direct is not calls or not _is_taken(rows, fused):
        return None
    return Coins(*calls.coins_of(rows))


def evidence_of(rows: Tensor, fused: Fused, *, extras: Sequence[str], target: Tensor | None) -> Numbers | None:
    """The numbers of `Evidence`: coins, top, surprise, margin, distance and `core.extras`; None if not asked for."""
    if fused.direct is not calls or not _is_taken(rows, fused, target):
        return None
    return calls.evidence(rows, extras=extras, target=target)


def columns(rows: Tensor, fused: Fused, names: Sequence[str], trials: int) -> list[Tensor] | None:
    """The quantities with these names for each row, in float64, if the kernels know all of them."""
    if trials > fused.most_trials or not _is_taken(rows, fused) or not fused.quantities.issuperset(names):
        return None
    found: list[Tensor] = (fused.direct or kernels).columns(rows, names, trials)
    return found


def add_tally(
    rows: Tensor, fused: Fused, target: Tensor | None, how: tuple[int | None, int, float], states: Sequence[Tensor]
) -> bool:
    """Add a batch to the tensors of a `Tally`; `how` is the ignored index, the trials and the level."""
    if how[1] > fused.most_trials or not _is_taken(rows, fused, target, *states):
        return False
    if fused.direct is not None:
        fused.direct.tally(rows, target, *how, states)
    else:
        kernels.tally(rows, target, *how, *states)
    return True


def add_evidence(
    fused: Fused, coins: Coins, labels: Numbers, how: tuple[int, int, float], states: Sequence[Tensor]
) -> bool:
    """Add samples whose coins were computed before to the tensors of a `Tally`.

    Args:
        fused: what `decide` returned for the odds.
        coins: in float64.
        labels: the target, the distance, and which samples count.
        how: the number of classes, the trials and the level.
        states: the tensors of a `Tally`.
    """
    given = [*coins[1:], *(x for x in labels if x is not None)]
    wide = all(x.dtype == torch.float64 for x in coins[1:])
    if not wide or how[1] > fused.most_trials or not _is_taken(coins.odds, fused, *given, *states):
        return False
    if fused.direct is not None:
        fused.direct.tally_evidence(coins, *labels, *how, states)
    else:
        kernels.tally_evidence(list(coins), *labels, *how, *states)
    return True


def add_gaps(
    rows: Tensor, fused: Fused, target: Tensor | None, how: tuple[int | None, str], states: Sequence[Tensor]
) -> bool:
    """Add a batch to the states of a mean gap; `how` is the ignored index and the part of the gap."""
    if not _is_taken(rows, fused, target, *states):
        return False
    if fused.direct is not None:
        fused.direct.gap_tally(rows, target, *how, states)
    else:
        kernels.gap_tally(rows, target, *how, *states)
    return True


def count_scores(
    rows: Tensor, fused: Fused, flags: Tensor, scores: tuple[Sequence[str], Sequence[int]], trials: int, states: Any
) -> bool:
    """Add a batch to the histogram and to the number of invalid rows; `scores` are the quantities and their signs."""
    known = fused.quantities.issuperset(scores[0])
    if not known or trials > fused.most_trials or not _is_taken(rows, fused, flags, *states):
        return False
    (fused.direct or kernels).count_scores(rows, flags, *scores, trials, *states)
    return True


def _is_taken(x: Tensor, fused: Fused, *others: Tensor | None) -> bool:
    """Whether a kernel may take these tensors: they need no gradient, and all are on one device.

    The device is checked here, because a kernel gets pointers, which do not tell their device.
    """
    if not fused.rows or (x.requires_grad and torch.is_grad_enabled()):
        return False
    device = x.device
    return all(other is None or other.device == device for other in others)
