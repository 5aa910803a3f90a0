"""Who computes: `decide` asks `kernels.choice` once for a call; then a fused kernel or a formula of `core` computes."""

import torch
from torch import Tensor

from .. import kernels
from ..core import coins as formulas
from ..core import rows as sums
from ..core import tails
from ..core.coins import Coins
from ..core.precision import widen
from ..core.rows import Rows
from ..kernels.choice import Fused, decide
from ..kernels.rows import named

__all__ = ["Fused", "coins_from_rows", "decide", "log_p_of_expected_wins", "log_tail", "row_sums", "widened"]


def row_sums(logits: Tensor, fused: Fused, *, extras: bool = False) -> Rows:
    """The sums over the last axis of `logits`, with `surprise` and `margin` if `extras` are asked for."""
    if not fused.rows:
        return sums.row_sums(logits, extras=extras)
    return named(kernels.row_sums(logits, extras))


def widened(rows: Rows) -> Rows:
    """Every sum in float64 (float32 on MPS), for work in which a confidence of 1 - 1e-12 is not 1."""
    return Rows(rows.prediction, *(None if x is None else widen(x) for x in rows[1:]))  # type: ignore[arg-type]


def coins_from_rows(rows: Rows, num_classes: int, fused: Fused) -> Coins:
    """Coins from the sums of each row; the kernel has no gradient, and two classes are simpler without it."""
    needs_gradient = rows.odds.requires_grad and torch.is_grad_enabled()
    if num_classes == 2 or needs_gradient or not fused.numbers:
        return formulas.coins_by_formula(rows, num_classes)
    spread = (rows.mass, rows.mass_squares)
    return Coins(rows.prediction, rows.odds, *kernels.coins(rows.odds, rows.squares, *spread, num_classes))


def log_tail(wins: Tensor, trials: int, odds: Tensor) -> Tensor:
    """The log of Pr{Binomial(trials, 1 / (1 + odds)) >= wins}; both tensors are wide and of one shape."""
    if not _fuse_tails(odds, trials):
        return tails.log_tail(wins, trials, odds)
    fused: Tensor = kernels.log_tail(wins, trials, odds)[0]
    return fused


def log_p_of_expected_wins(loss: Tensor, trials: int, odds: Tensor) -> Tensor:
    """`log_tail` of the expected wins."""
    if not _fuse_tails(odds, trials):
        return tails.log_tail(tails.expected_wins(loss, trials), trials, widen(odds))
    fused: Tensor = kernels.log_p_value(loss, trials, odds)[0]
    return fused


def _fuse_tails(odds: Tensor, trials: int) -> bool:
    fused = decide(odds)
    return fused.numbers and trials <= fused.most_trials
