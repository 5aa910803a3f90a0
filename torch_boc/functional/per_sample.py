"""The statistics of a batch: the numbers of each sample that scores, columns and tallies are computed from.

One pass over the logits gathers it. A sample has a few numbers for any number of classes, so that the statistics can be
padded, gathered from several processes, and tallied later.
"""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

from ..core.coins import Coins
from ..core.schema import COINS
from ..core.score_terms import EXTRAS as MORE
from ..kernels.dispatch import columns
from .checks import check_target, check_trials, classes_last

# The numbers that are computed only if they are asked for; the first two are sums of `core.row_sums`.
EXTRAS = ("entropy_sum", "margin", *MORE)


class SampleStats(NamedTuple):
    """What is known of each sample, without the class axis and without the logits.

    Attributes:
        coins: the coins of each sample, in float64 (float32 on MPS).
        num_classes: C.
        trials: the number of coin flips of the p-values.
        top: the largest logit of each sample; None if the statistics were not gathered from logits.
        entropy_sum: the sum over the rivals of u_j (z_top - z_j). This and the other `extras` of `sample_stats` are
            None if they were not requested.
        margin: the sum over the rivals of z_top - z_j.
        counted: which samples count; None if all samples count.
        target: class indices, or None.
        distance: how far the target's logit is below the top, 0 for a target that is no class; None without targets.
        log_odds: minus the log of the odds against the prediction, exact even if these underflow.
        tempered_loss: the mean over the rivals of the sigmoid of (z_j - z_top) / 4.
        top_margin: the sum over the N nearest rivals of z_top - z_j; N is `core.score_terms.nearest_rivals`.
        gen: the sum over the 100 largest probabilities of (p_j (1 - p_j))^0.1.
    """

    coins: Coins
    num_classes: int
    trials: int = 100
    top: Tensor | None = None
    entropy_sum: Tensor | None = None
    margin: Tensor | None = None
    counted: Tensor | None = None
    target: Tensor | None = None
    distance: Tensor | None = None
    log_odds: Tensor | None = None
    tempered_loss: Tensor | None = None
    top_margin: Tensor | None = None
    gen: Tensor | None = None


def sample_stats(
    logits: Tensor,
    target: Tensor | None = None,
    *,
    dim: int = -1,
    trials: int = 100,
    extras: bool | Iterable[str] = False,
    ignore_index: int | None = None,
    keep_dtype: bool = False,
) -> SampleStats:
    """Gather the statistics of a batch in one pass over its logits, for scores, columns, tallies and metrics.

    Args:
        logits: shape (..., C).
        target: class indices of shape (...), or None.
        dim: the class axis; by default the last, so that logits of shape (N, T, C) have their C classes there.
        trials: the number of coin flips of the p-values.
        extras: the names of the numbers to compute that only some scores need, among `entropy_sum`, `margin`,
            `log_odds`, `tempered_loss`, `top_margin` and `gen`; True for all of them, False for none.
        ignore_index: samples with this target do not count.
        keep_dtype: whether the numbers have the dtype of `bag_of_coins` instead of float64.

    Returns:
        SampleStats. It is differentiable in the logits, and does not contain the logits.

    >>> stats = sample_stats(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([1]))
    >>> stats.coins.prediction, stats.top, stats.distance
    (tensor([0]), tensor([2.], dtype=torch.float64), tensor([1.], dtype=torch.float64))
    """
    trials, extras = check_trials(trials), check_extras(extras)
    rows = classes_last(logits, dim)
    target = None if target is None else check_target(target, rows.shape[:-1])
    counted = None if ignore_index is None or target is None else target != ignore_index
    names = (*COINS, "top", *extras) if target is None else (*COINS, "top", *extras, "distance")
    numbers = columns(rows, names, target, keep_dtype=keep_dtype)
    coins = Coins(*map(numbers.pop, COINS))
    return SampleStats(coins, rows.shape[-1], trials, counted=counted, target=target, **numbers)


def check_extras(extras: bool | Iterable[str]) -> tuple[str, ...]:
    """Return the names of `extras` in the order of EXTRAS, or raise."""
    asked = {*(EXTRAS if extras is True else extras or ())}
    if isinstance(extras, str) or not asked <= {*EXTRAS}:
        raise ValueError(f"expected extras as True, False or a list of names among {', '.join(EXTRAS)}, got {extras!r}")
    return tuple(filter(asked.__contains__, EXTRAS))
