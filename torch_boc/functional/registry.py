"""The registry of scores that separate familiar from unfamiliar inputs; higher = more in-distribution."""

import torch
from torch import Tensor

from ..core.coins import gap_of
from ..core.extras import nearest_rivals
from . import trials as test
from .evidence import Evidence
from .score import Score, compute_scores, current_name, find_score, rank, register, scores

__all__ = ["Score", "compute_scores", "current_name", "find_score", "rank", "register", "scores"]


def _given(x: Tensor | None) -> Tensor:
    if x is None:
        raise ValueError("expected evidence with the top logits and the sums that this score needs, got none of these")
    return x


def _confidence(minus_odds: Tensor) -> Tensor:
    return 1 / (1 - minus_odds)


def _chance(minus_complement: Tensor) -> Tensor:
    return 1 + minus_complement


def _complement(minus_log: Tensor) -> Tensor:
    return -torch.expm1(-minus_log)


@register("largest softmax probability", symbol="MSP", value=_confidence)
def msp(evidence: Evidence) -> Tensor:
    return -evidence.coins.odds


@register("log of the odds for the prediction, which does not saturate", extras=["log_odds"])
def log_odds(evidence: Evidence) -> Tensor:
    return _given(evidence.log_odds)


@register("log sum exp of the logits, minus the energy at temperature 1")
def energy(evidence: Evidence) -> Tensor:
    return _given(evidence.top) + torch.log1p(evidence.coins.odds)


@register("largest logit")
def max_logit(evidence: Evidence) -> Tensor:
    return _given(evidence.top)


@register("minus the entropy of the softmax", extras=["surprise"])
def entropy(evidence: Evidence) -> Tensor:
    odds = evidence.coins.odds
    return -(torch.log1p(odds) + _given(evidence.surprise) / (1 + odds))


@register(
    "minus the generalized entropy of the 100 largest probabilities: the sum of (p (1 - p))^0.1",
    symbol="GEN",
    extras=["gen"],
)
def gen(evidence: Evidence) -> Tensor:
    return -_given(evidence.gen)


@register(
    "mean log-odds of the coins: mean distance of the rivals below the top logit",
    extras=["margin"],
)
def logit_gap(evidence: Evidence) -> Tensor:
    return _given(evidence.margin) / (evidence.num_classes - 1)


@register(
    "mean distance of the N nearest rivals below the top logit",
    symbol="logit gap, top N",
    extras=["top_margin"],
)
def logit_gap_top(evidence: Evidence) -> Tensor:
    return _given(evidence.top_margin) / nearest_rivals(evidence.num_classes)


@register("mean chance that the top class beats a rival", symbol="q̄", value=_chance)
def dominance(evidence: Evidence) -> Tensor:
    return -evidence.coins.loss


@register(
    "mean chance that the top class beats a rival at temperature 4",
    symbol="q̄ at T = 4",
    value=_chance,
    extras=["tempered_loss"],
)
def tempered_dominance(evidence: Evidence) -> Tensor:
    return -_given(evidence.tempered_loss)


@register("minus the coherence gap", symbol="−Δ")
def gap(evidence: Evidence) -> Tensor:
    return -gap_of(evidence.coins.odds, evidence.coins.loss)  # torch 2.7 cannot compile the property `gap`


@register("log of the p-value of the expected wins", symbol="p*", axis="log p*")
def log_p_value(evidence: Evidence) -> Tensor:
    return test.log_p_value(evidence.coins, evidence.trials)


@register("minus the concentration of the rest on few rivals", symbol="−ρ")
def concentration(evidence: Evidence) -> Tensor:
    return -evidence.coins.concentration


@register(
    "the paper's score, 1 - p-value: upside down, higher = less in-distribution",
    symbol="s_BoC",
    value=_complement,
    upside_down=True,
)
def structural_score(evidence: Evidence) -> Tensor:
    return -test.log_p_value(evidence.coins, evidence.trials)
