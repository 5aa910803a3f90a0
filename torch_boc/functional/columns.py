"""The numbers that are worth keeping for each sample, from one pass over the logits."""

from collections.abc import Callable, Iterable, Mapping

from torch import Tensor

from ..core.coins import gap_of
from . import registry
from .checks import bare, check_trials, classes_last
from .coins import bag_of_coins
from .evidence import Evidence, gather
from .paths import coins_from_rows, decide, row_sums
from .trials import log_p_value

# Each column as a function of the evidence. Properties of `Coins` are written out: torch 2.7 cannot compile them.
_COLUMNS: Mapping[str, Callable[[Evidence], Tensor]] = {
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


def check_columns(columns: Iterable[str] | None, more: Iterable[str] = ()) -> tuple[str, ...]:
    """Return `columns` without repetitions if all are known, or raise. None means all known columns.

    Args:
        columns: names.
        more: further names that are known.
    """
    known = (*COLUMNS, *more)
    if columns is None:
        return known
    names = [columns] if isinstance(columns, str) else list(columns)
    unknown = [name for name in names if name not in known]
    if isinstance(columns, str) or unknown or not names:
        got = repr(columns) if isinstance(columns, str) or not names else ", ".join(map(repr, unknown))
        raise ValueError(f"expected columns as a list of names among {', '.join(known)}, got {got}")
    return tuple(dict.fromkeys(names))


def sample_columns(
    logits: Tensor, *, dim: int = -1, trials: int = 100, columns: Iterable[str] | None = None
) -> dict[str, Tensor]:
    """The columns of a table with a row for each sample.

    Args:
        logits: shape (..., C).
        dim: the class axis; by default the last, so that logits of shape (N, T, C) have their C classes there.
        trials: the number of coin flips of the p-value.
        columns: the names of the columns, in this order. The default is all: `prediction`, `confidence`, `dominance`,
            `gap`, its parts `forced_gap` and `free_gap`, `concentration`, `p_value`, `log_p_value`, `energy`,
            `logit_gap`, and `odds` and `loss`, from which reports on tables are computed.

    Returns:
        Tensors without the class axis, on the device of the logits. `prediction` is int64, the others are float64
        (float32 on MPS). They have no gradient.

    >>> sample_columns(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), columns=["prediction", "free_gap"])
    {'prediction': tensor([0]), 'free_gap': tensor([0.0105], dtype=torch.float64)}
    """
    names, rows = check_columns(columns), classes_last(bare(logits), dim)
    trials = check_trials(trials)
    return columns_of(gather(rows, trials=trials, extras=column_extras(names)), names)


def column_extras(names: Iterable[str]) -> tuple[str, ...]:
    """What these columns need as the `extras` of `gather`."""
    return ("margin",) if "logit_gap" in names else ()


def probe_columns(logits: Tensor, *, trials: int = 100, columns: Iterable[str] | None = None) -> dict[str, Tensor]:
    """Like `sample_columns` for logits of shape (..., C), but with gradients and in the dtype of `bag_of_coins`."""
    names, classes, trials = check_columns(columns), logits.shape[-1], check_trials(trials)
    if "energy" not in names and "logit_gap" not in names:
        return columns_of(Evidence(bag_of_coins(logits), classes, trials), names)
    extras = "logit_gap" in names
    sums = row_sums(logits, decide(logits), extras=extras)
    coins = coins_from_rows(sums, classes, decide(sums.odds))
    return columns_of(Evidence(coins, classes, trials, sums.top, margin=sums.margin), names)


def columns_of(evidence: Evidence, names: Iterable[str] = COLUMNS) -> dict[str, Tensor]:
    """The columns from evidence; `logit_gap` needs evidence that was gathered with the extra `margin`."""
    found = {name: _COLUMNS[name](evidence) for name in names if name != "p_value"}
    if "p_value" in names:  # from the logarithm, if that was computed
        log_p = found.get("log_p_value")
        found["p_value"] = _COLUMNS["p_value"](evidence) if log_p is None else log_p.exp()
    return {name: found[name] for name in names}
