"""The columns of a table with one row per sample, from one pass over the logits."""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from ..core.coins import Coins, gap_of
from ..core.dtypes import to_wide
from ..core.schema import COINS
from ..core.tally import is_class, log_loss
from . import registry
from .binomial_test import log_p_value
from .checks import check_classes, check_names, check_trials, classes_last
from .per_sample import SampleStats, sample_stats

# Each column as a function of the statistics. Properties of `Coins` are written out: torch 2.7 cannot compile them.
_COLUMNS: Mapping[str, Callable[[SampleStats], Tensor]] = {
    "prediction": lambda x: x.coins.prediction,
    "confidence": lambda x: (1.0 + x.coins.odds).reciprocal(),
    "dominance": lambda x: 1.0 - x.coins.loss,
    "gap": lambda x: gap_of(x.coins.odds, x.coins.loss),
    "forced_gap": lambda x: gap_of(x.coins.odds, x.coins.loss) - x.coins.free_gap,
    "free_gap": lambda x: x.coins.free_gap,
    "concentration": lambda x: x.coins.concentration,
    "p_value": lambda x: log_p_value(x.coins, x.trials).exp(),
    "log_p_value": lambda x: log_p_value(x.coins, x.trials),
    "energy": registry.energy,
    "logit_gap": registry.logit_gap,
    "odds": lambda x: x.coins.odds,
    "loss": lambda x: x.coins.loss,
}
COLUMNS = tuple(_COLUMNS)
# The column of labelled samples: the logarithm of the target's probability, from which the NLL follows.
TARGET_COLUMN = "target_log_probability"
# The columns of lists that a predictor adds: the likeliest classes and their probabilities.
LIST_COLUMNS = ("top_classes", "top_confidences")


def check_columns(columns: Iterable[str] | None, more: Iterable[str] = ()) -> tuple[str, ...]:
    """Return `columns` without repetitions if all are known, or raise. None means all known columns.

    Args:
        columns: names.
        more: further names that are known.
    """
    names = (*COLUMNS, *more)
    return names if columns is None else check_names("columns", columns, names)


def sample_columns(
    logits: Tensor,
    target: Tensor | None = None,
    *,
    dim: int = -1,
    trials: int = 100,
    columns: Iterable[str] | None = None,
) -> dict[str, Tensor]:
    """The columns of a table with one row per sample.

    Args:
        logits: shape (..., C).
        target: class indices, for the column `target_log_probability`: NaN where the target is no class.
        dim: the class axis; by default the last, so that logits of shape (N, T, C) have their C classes there.
        trials: the number of coin flips of the p-value.
        columns: the names of the columns, in this order. The default is all: `prediction`, `confidence`, `dominance`,
            `gap`, its parts `forced_gap` and `free_gap`, `concentration`, `p_value`, `log_p_value`, `energy`,
            `logit_gap`, and `odds` and `loss`, from which reports on tables are computed, and with a target
            `target_log_probability`.

    Returns:
        Tensors without the class axis, on the device of the logits. `prediction` is int64, the others are float64
        (float32 on MPS). They have no gradient.

    >>> sample_columns(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), columns=["prediction", "free_gap"])
    {'prediction': tensor([0]), 'free_gap': tensor([0.0105], dtype=torch.float64)}
    """
    names = check_columns(columns, () if target is None else (TARGET_COLUMN,))
    names = (TARGET_COLUMN, *COLUMNS) if columns is None and target is not None else names
    rows = classes_last(logits, dim).detach()
    return columns_of(sample_stats(rows, target, trials=trials, extras=column_extras(names)), names)


def column_extras(names: Iterable[str]) -> tuple[str, ...]:
    """What these columns need as the `extras` of `sample_stats`."""
    return ("margin",) if "logit_gap" in names else ()


def columns_of(stats: SampleStats, names: Iterable[str] = COLUMNS) -> dict[str, Tensor]:
    """The columns from statistics; `logit_gap` needs statistics with the extra `margin`."""
    columns = {name: _COLUMNS[name](stats) for name in names if name not in ("p_value", TARGET_COLUMN)}
    if TARGET_COLUMN in names and stats.target is not None and stats.distance is not None:
        labelled = is_class(stats.target, stats.num_classes)
        columns[TARGET_COLUMN] = torch.where(labelled, -log_loss(stats.coins.odds, stats.distance), torch.nan)
    if "p_value" in names:  # from the logarithm, if that was computed
        log_p = columns.get("log_p_value")
        columns["p_value"] = _COLUMNS["p_value"](stats) if log_p is None else log_p.exp()
    return {name: columns[name] for name in names}


def restore_sample_stats(columns: Mapping[str, Tensor], *, num_classes: int, trials: int = 100) -> SampleStats:
    """The statistics of samples from the columns that `sample_columns` and `BoCPredictor` give, as far as these tell.

    Args:
        columns: tensors of one shape by name: `prediction`, `odds`, `loss`, `concentration` and `free_gap`, and if they
            are there `energy`, `logit_gap`, `target` and `target_log_probability`. Other columns are ignored.
        num_classes: C.
        trials: the number of coin flips of p-values that are computed from the statistics.

    Returns:
        SampleStats with the coins and `log_odds`, with `top` if there is an `energy`, with `margin` if there is a
        `logit_gap`, and with the `target` if there is one. Without `target_log_probability`, the `distance` of a target
        that is not the prediction is NaN.

    >>> stats = restore_sample_stats(sample_columns(torch.tensor([[2.0, 1.0, 0.0, -1.0]])), num_classes=4)
    >>> stats.num_classes, round(stats.coins.odds.item(), 6)
    (4, 0.553002)
    """
    missing = [name for name in COINS if name not in columns]
    if missing:
        raise ValueError(f"expected columns {', '.join(COINS)}, got none of the name {missing[0]!r}")
    prediction, *numbers = (columns[name] for name in COINS)
    coins = Coins(prediction.long(), *map(to_wide, numbers))
    classes = check_classes(num_classes)
    top = to_wide(columns["energy"]) - coins.odds.log1p() if "energy" in columns else None
    margin = to_wide(columns["logit_gap"]) * (classes - 1) if "logit_gap" in columns else None
    target = columns["target"].long() if "target" in columns else None
    distance = None
    if target is not None:
        below = -to_wide(columns[TARGET_COLUMN]) - coins.odds.log1p() if TARGET_COLUMN in columns else torch.nan
        distance = torch.where(coins.prediction == target, 0.0, below).to(coins.odds.dtype).clamp_min(0.0)
    extras = {"margin": margin, "target": target, "distance": distance, "log_odds": -coins.odds.log()}
    return SampleStats(coins, classes, check_trials(trials), top, **extras)
