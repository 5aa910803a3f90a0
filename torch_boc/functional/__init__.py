"""The mathematics of the probe, as pure functions of tensors, on any device, with torch.compile and autograd."""

from ..core.coins import Coins
from .acceptance import AcceptanceThreshold, augrc, aurc, coverage_at_error
from .betting import place_bets, risk_evidence
from .bounds import dominance_bounds, forced_gap, free_gap
from .coins import bag_of_coins
from .columns import restore_evidence, sample_columns
from .conformal import Threshold, adjusted_p_values
from .dice import bag_of_dice
from .evidence import Evidence, gather
from .registry import Score, choose_temperature, compute_scores, scores, tempered_dominance
from .separation import aupr, auroc, fpr_at_tpr
from .summary import boc_summary, coherence_gap
from .tokens import TokenNumbers, token_numbers
from .trials import (
    binomial_log_tail,
    binomial_tail,
    expected_wins,
    flip_coins,
    log_p_value,
    p_value,
    sample_wins,
    structural_score,
)

__all__ = [
    "AcceptanceThreshold",
    "Coins",
    "Evidence",
    "Score",
    "Threshold",
    "TokenNumbers",
    "adjusted_p_values",
    "augrc",
    "aupr",
    "aurc",
    "auroc",
    "bag_of_coins",
    "bag_of_dice",
    "binomial_log_tail",
    "binomial_tail",
    "boc_summary",
    "choose_temperature",
    "coherence_gap",
    "compute_scores",
    "coverage_at_error",
    "dominance_bounds",
    "expected_wins",
    "flip_coins",
    "forced_gap",
    "fpr_at_tpr",
    "free_gap",
    "gather",
    "log_p_value",
    "p_value",
    "place_bets",
    "restore_evidence",
    "risk_evidence",
    "sample_columns",
    "sample_wins",
    "scores",
    "structural_score",
    "tempered_dominance",
    "token_numbers",
]
