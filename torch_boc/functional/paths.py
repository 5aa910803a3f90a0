"""Run a fused kernel or a formula of `core`, as `decide` of `kernels.choice` says. Each call asks it once."""

import torch
from torch import Tensor

from .. import kernels
from ..core import coins as formulas
from ..core import rows as sums
from ..core import standing as standings
from ..core import tails
from ..core.coins import Coins
from ..core.precision import widen
from ..core.rows import Rows
from ..kernels.choice import Fused, decide
from ..kernels.cpu import calls
from ..kernels.rows import named

__all__ = [
    "Fused",
    "coins_from_rows",
    "decide",
    "log_p_of_expected_wins",
    "log_tail",
    "row_sums",
    "standing",
    "widened",
]


def row_sums(logits: Tensor, fused: Fused, *, extras: bool = False) -> Rows:
    """The sums over the last axis of `logits`; with `extras`, also `surprise` and `margin`."""
    if not fused.rows:
        return sums.row_sums(logits, extras=extras)
    return named(kernels.row_sums(logits, extras))


def widened(rows: Rows) -> Rows:
    """Every sum in float64 (float32 on MPS). In float64, a confidence of 1 - 1e-12 does not round to 1."""
    return Rows(rows.prediction, *(None if x is None else widen(x) for x in rows[1:]))  # type: ignore[arg-type]


def coins_from_rows(rows: Rows, num_classes: int, fused: Fused) -> Coins:
    """Coins from the sums of each row. The kernel is not used if a gradient is needed or for two classes."""
    needs_gradient = rows.odds.requires_grad and torch.is_grad_enabled()
    if num_classes == 2 or needs_gradient or not fused.numbers:
        return formulas.coins_by_formula(rows, num_classes)
    spread = (rows.mass, rows.mass_squares)
    return Coins(rows.prediction, rows.odds, *kernels.coins(rows.odds, rows.squares, *spread, num_classes))


def standing(logits: Tensor, index: Tensor, fused: Fused) -> tuple[Tensor, Tensor]:
    """How many coins the class `index` of each row is expected to lose, and how many classes are ahead of it.

    The kernels are not used if a gradient is needed.
    """
    if not fused.rows or (logits.requires_grad and torch.is_grad_enabled()):
        return standings.standing(logits, index)
    if fused.direct is calls and type(index) is Tensor and index.device == logits.device:
        return calls.standing(logits, index)
    lost, ahead = kernels.standing(logits, index)
    return lost, ahead


def log_tail(wins: Tensor, trials: int, odds: Tensor) -> Tensor:
    """The log of Pr{Binomial(trials, 1 / (1 + odds)) >= wins}; both tensors come from `widen` and have one shape."""
    fused = _fused_tails(wins, trials, odds, expected=False)
    return tails.log_tail(wins, trials, odds) if fused is None else fused


def log_p_of_expected_wins(loss: Tensor, trials: int, odds: Tensor) -> Tensor:
    """`log_tail` for the expected number of wins, which follows from `loss`."""
    fused = _fused_tails(loss, trials, odds, expected=True)
    return tails.log_tail(tails.expected_wins(loss, trials), trials, widen(odds)) if fused is None else fused


def _fused_tails(given: Tensor, trials: int, odds: Tensor, *, expected: bool) -> Tensor | None:
    """The log tails by a kernel, or None if no kernel can do it. Plain CPU tensors go to it without an operator."""
    fused = decide(odds)
    if not fused.numbers or trials > fused.most_trials:
        return None
    watched = fused.direct is not calls or odds.requires_grad or type(given) is not Tensor or given.is_neg()
    if watched or given.shape != odds.shape or given.device != odds.device:
        by_operator: Tensor = (kernels.log_p_value if expected else kernels.log_tail)(given, trials, odds)[0]
        return by_operator
    return calls.log_tails(given, trials, odds, expected=expected)[0]
