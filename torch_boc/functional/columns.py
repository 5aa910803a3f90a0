"""What is worth keeping of each sample, from one pass over its logits."""

from torch import Tensor

from .checks import check_logits, check_trials
from .coins import coins_from_rows
from .registry import Evidence, scores
from .rows import wide_row_sums
from .trials import log_p_value

COLUMNS = (
    "prediction",
    "confidence",
    "dominance",
    "gap",
    "concentration",
    "p_value",
    "log_p_value",
    "energy",
    "logit_gap",
)


def sample_columns(logits: Tensor, *, dim: int = -1, trials: int = 100) -> dict[str, Tensor]:
    """The columns of a table with a row for each sample, in the order of `COLUMNS`.

    Args:
        logits: shape (..., C).
        dim: the class axis.
        trials: the number of coin flips of the p-value.

    Returns:
        Tensors without the class axis on the logits' device: `prediction` int64, the others float64 (float32 on MPS).

    >>> list(sample_columns(torch.tensor([[2.0, 1.0, 0.0]])))[:4]
    ['prediction', 'confidence', 'dominance', 'gap']
    """
    dim, trials = check_logits(logits, dim), check_trials(trials)
    rows = wide_row_sums(logits.detach().movedim(dim, -1), extras=True)
    coins = coins_from_rows(rows, logits.shape[dim])
    log_p = log_p_value(coins, trials)
    evidence = Evidence(rows, coins, logits.shape[dim], trials)
    values = (coins.prediction, coins.confidence, coins.dominance, coins.gap, coins.concentration, log_p.exp(), log_p)
    more = (scores[name].function(evidence) for name in ("energy", "logit_gap"))
    return dict(zip(COLUMNS, (*values, *more), strict=True))
