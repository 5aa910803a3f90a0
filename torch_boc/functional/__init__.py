"""The mathematics of the probe, as pure functions of tensors, on any device, with torch.compile and autograd."""

from ..core.coins import Coins
from .binomial_test import (
    binomial_log_tail,
    binomial_tail,
    expected_wins,
    flip_coins,
    log_p_value,
    p_value,
    sample_wins,
    structural_score,
)
from .bounds import dominance_bounds, forced_gap
from .coins import bag_of_coins
from .conformal import Threshold
from .dice import bag_of_dice
from .martingale import risk_evidence, update_martingale
from .per_sample import SampleStats, sample_stats
from .registry import Score, choose_temperature, compute_scores, scores, tempered_dominance
from .selective import AcceptanceThreshold, augrc, aurc, coverage_at_error
from .separation import aupr, auroc, fpr_at_tpr
from .summary import boc_summary, coherence_gap
from .table_columns import restore_sample_stats, sample_columns
from .tokens import TokenNumbers, token_numbers

__all__ = [
    "AcceptanceThreshold",
    "Coins",
    "SampleStats",
    "Score",
    "Threshold",
    "TokenNumbers",
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
    "log_p_value",
    "p_value",
    "restore_sample_stats",
    "risk_evidence",
    "sample_columns",
    "sample_stats",
    "sample_wins",
    "scores",
    "structural_score",
    "tempered_dominance",
    "token_numbers",
    "update_martingale",
]
