"""The evidence of a batch: the numbers of each sample that scores, columns and tallies are computed from.

One pass over the logits gathers it. A sample has a few numbers for any number of classes, so that the evidence can be
padded, gathered from several processes, and tallied later.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.blocks import blockwise
from ..core.coins import Coins
from ..core.extras import EXTRAS as MORE
from ..core.extras import extras_by_blocks
from ..core.precision import is_plain, widen
from . import whole
from .checks import check_target, check_trials, classes_last
from .paths import Fused, coins_from_rows, decide, row_sums, widened

# The numbers that are computed only if they are asked for; the first two are sums of `core.rows`.
SUMS = ("surprise", "margin")
EXTRAS = (*SUMS, *MORE)
_NAMES = (*Coins._fields, "top", *SUMS, "distance", *MORE)


class Evidence(NamedTuple):
    """What is known of each sample, without the class axis and without the logits.

    Attributes:
        coins: the coins of each sample, in float64 (float32 on MPS).
        num_classes: C.
        trials: the number of coin flips of the p-values.
        top: the largest logit of each sample; None if the evidence was not gathered from logits.
        surprise: the sum over the rivals of u_j (z_top - z_j). This and the other `extras` of `gather` are None if they
            were not asked for.
        margin: the sum over the rivals of z_top - z_j.
        counted: which samples count; None if all samples count.
        target: class indices, or None.
        distance: how far the target's logit is below the top, 0 for a target that is no class; None without targets.
        log_odds: minus the log of the odds against the prediction, also where these underflow.
        tempered_loss: the mean over the rivals of the sigmoid of (z_j - z_top) / 4.
        top_margin: the sum over the N nearest rivals of z_top - z_j; N is `core.extras.nearest_rivals`.
        gen: the sum over the 100 largest probabilities of (p_j (1 - p_j))^0.1.
    """

    coins: Coins
    num_classes: int
    trials: int = 100
    top: Tensor | None = None
    surprise: Tensor | None = None
    margin: Tensor | None = None
    counted: Tensor | None = None
    target: Tensor | None = None
    distance: Tensor | None = None
    log_odds: Tensor | None = None
    tempered_loss: Tensor | None = None
    top_margin: Tensor | None = None
    gen: Tensor | None = None


def gather(
    logits: Tensor,
    target: Tensor | None = None,
    *,
    dim: int = -1,
    trials: int = 100,
    extras: bool | Iterable[str] = False,
    ignore_index: int | None = None,
) -> Evidence:
    """Gather the evidence of a batch in one pass over its logits, for scores, columns, tallies and metrics.

    Args:
        logits: shape (..., C).
        target: class indices of shape (...), or None.
        dim: the class axis; by default the last, so that logits of shape (N, T, C) have their C classes there.
        trials: the number of coin flips of the p-values.
        extras: the names of the numbers to compute that only some scores need, among `surprise`, `margin`, `log_odds`,
            `tempered_loss`, `top_margin` and `gen`; True for all of them, False for none.
        ignore_index: samples with this target do not count.

    Returns:
        Evidence. It is differentiable in the logits, and does not contain the logits.

    >>> evidence = gather(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([1]))
    >>> evidence.coins.prediction, evidence.top, evidence.distance
    (tensor([0]), tensor([2.], dtype=torch.float64), tensor([1.], dtype=torch.float64))
    """
    trials, extras = check_trials(trials), check_extras(extras)
    rows = classes_last(logits, dim)
    target = None if target is None else check_target(target, rows.shape[:-1])
    counted = None if ignore_index is None or target is None else target != ignore_index
    found = _numbers(rows, target, extras)
    coins = Coins(*(found.pop(name) for name in Coins._fields))
    return Evidence(coins, rows.shape[-1], trials, counted=counted, target=target, **found)


def _numbers(rows: Tensor, target: Tensor | None, extras: tuple[str, ...]) -> dict[str, Tensor]:
    """The fields of Coins and of Evidence by name, without those that are None."""
    fused = decide(rows)
    found: Any = whole.evidence_of(rows, fused, extras=extras, target=target)
    if found is None:
        in_blocks = is_plain(rows) and any(name in MORE for name in extras)  # the other sums make their own blocks
        found = (_by_blocks if in_blocks else _by_parts)(rows, target, fused, extras)
    return {name: x for name, x in zip(_NAMES, found, strict=True) if x is not None}


def _by_blocks(rows: Tensor, target: Tensor | None, fused: Fused, extras: tuple[str, ...]) -> list[Tensor | None]:
    """`_by_parts` of one piece after the other, so that each logit comes from memory once."""
    present: list[bool] = []

    def numbers(z: Tensor, *labels: Tensor) -> tuple[Tensor, ...]:
        found = _by_parts(z, labels[0].squeeze(-1) if labels else None, fused, extras)
        present[:] = [x is not None for x in found]
        return tuple(x for x in found if x is not None)

    values = iter(blockwise(numbers, rows, *(() if target is None else (target.unsqueeze(-1),))))
    return [next(values) if here else None for here in present]


def _by_parts(rows: Tensor, target: Tensor | None, fused: Fused, extras: tuple[str, ...]) -> list[Tensor | None]:
    """The numbers with the names `_NAMES`, from the sums of each row and those of `core.extras`."""
    more, found = tuple(name for name in MORE if name in extras), {}
    if more:
        known = whole.columns(rows, fused, ["log_odds"], 1) if "log_odds" in more or "gen" in more else None
        rows, *numbers = extras_by_blocks(rows, more, log_odds=None if known is None else known[0])
        found = dict(zip(more, numbers, strict=True))
    sums = widened(row_sums(rows, fused, extras=any(name in SUMS for name in extras)))
    coins = coins_from_rows(sums, rows.shape[-1], fused)
    distance = None if target is None else distance_below_top(rows, target, coins.prediction)
    return [*coins, sums.top, sums.surprise, sums.margin, distance, *(found.get(name) for name in MORE)]


def check_extras(extras: bool | Iterable[str]) -> tuple[str, ...]:
    """Return the names of `extras` in the order of EXTRAS, or raise."""
    asked = {*EXTRAS} if extras is True else {*()} if extras is False else {*extras}
    if isinstance(extras, str) or not asked <= {*EXTRAS}:
        raise ValueError(f"expected extras as True, False or a list of names among {', '.join(EXTRAS)}, got {extras!r}")
    return tuple(name for name in EXTRAS if name in asked)


def every(evidence: Evidence, start: int, step: int) -> Evidence:
    """The samples `start`, `start + step`, `start + 2 step` and so on of the first axis.

    >>> every(gather(torch.eye(4)), 1, 2).coins.prediction
    tensor([1, 3])
    """
    values = [x[start::step] if isinstance(x, Tensor) else x for x in evidence]
    return Evidence(Coins(*(x[start::step] for x in evidence.coins)), *values[1:])  # type: ignore[arg-type]


def settle(evidence: Evidence) -> tuple[Coins, Tensor, Tensor]:
    """The coins as flat tensors, which samples count, and which samples are left out as invalid (NaN or infinite)."""
    numbers = torch.stack([flat(x) for x in evidence.coins[1:]])
    total = numbers.sum(0)
    valid = total - total == 0.0  # False if one of the numbers is NaN or infinite
    if evidence.counted is None:
        unused = invalid = ~valid
    else:
        counted = flat(evidence.counted)
        valid = counted & valid
        unused, invalid = ~valid, counted > valid
    # Rows that do not count become sure predictions: all their numbers are finite, and their weight is 0.
    return Coins(flat(evidence.coins.prediction), *numbers.masked_fill_(unused, 0.0).unbind()), valid, invalid


def flat(x: Tensor) -> Tensor:
    """`x` with a single axis."""
    return x if x.ndim == 1 else x.reshape(-1)


def is_class(target: Tensor, num_classes: int) -> Tensor:
    """Which targets are a class, from 0 to `num_classes` - 1."""
    return target == target.clamp(0, num_classes - 1)


def distance_below_top(rows: Tensor, target: Tensor, prediction: Tensor) -> Tensor:
    """How far the target's logit is below the top; 0 for a target that is no class."""
    own = torch.where(is_class(target, rows.shape[-1]), target, prediction)
    top, own = widen(rows.gather(-1, torch.stack([prediction, own], -1))).unbind(-1)
    return top - own


def log_loss(odds: Tensor, distance: Tensor) -> Tensor:
    """The negative log-likelihood of the target: log(1 + R) plus the distance of its logit below the top."""
    return torch.log1p(odds) + distance
