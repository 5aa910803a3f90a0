"""Where a conformal test finds each sample: how it is scored, placed and grouped."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.chunking import map_chunks
from ..core.dtypes import accumulation_dtype
from ..core.tally import is_class
from .checks import check_target
from .conformal import STRATA, confidence_stratum, score_bin
from .per_sample import SampleStats, sample_stats
from .registry import scores

FINEST = 2**14
# The number of coin flips of scores that are p-values, whatever the statistics was gathered for.
TRIALS = 100
# The score of tests that are given the numbers themselves.
GIVEN = "given"


class ScoreConfig(NamedTuple):
    """How samples are scored and compared; `torch_boc.ConformalTest` documents the fields."""

    score: str
    temperature: float = 1.0
    groups: str | int | None = None
    resolution: int = 1024

    @property
    def name(self) -> str:
        """The name of the score in the registry."""
        return self.score.removeprefix("-")

    def num_groups(self, num_classes: int | None) -> int:
        """The number of groups; 0 if it is not known before the number of classes is."""
        if self.groups == "prediction":
            return num_classes or 0
        if isinstance(self.groups, int):
            return self.groups
        return 1 if self.groups is None else len(STRATA) + 1

    def impossible_groups(self, num_classes: int) -> int:
        """How many of the first groups no sample can be in: a confidence is at least 1 / C."""
        return sum(edge <= 1 / num_classes for edge in STRATA) if self.groups == "confidence" else 0


class BinnedScores(NamedTuple):
    """Where the samples of a batch are. All tensors have the shape of the logits without the class axis.

    Attributes:
        place: the place of the score of each sample, from `score_bin`.
        group: the group of each sample, or None if there is one group.
        valid: which samples count: those whose score is a number, and whose group is known.
        prediction: the predicted class of each sample, or None if it is not counted.
    """

    bin: Tensor
    group: Tensor | None
    valid: Tensor
    prediction: Tensor | None = None


def check_score_config(scoring: ScoreConfig) -> ScoreConfig:
    """Return `scoring` if a test can be made of it, or raise."""
    name, (_, temperature, groups, resolution) = scoring.name, scoring
    if name not in scores and name != GIVEN:
        raise ValueError(f"expected score among {', '.join(scores)} and {GIVEN}, got {scoring.score!r}")
    if name in scores and scores[name].upside_down:
        raise ValueError(f"expected a score that is higher in-distribution, got {name!r}; use 'log_p_value'")
    if not (temperature > 0 and math.isfinite(temperature)):
        raise ValueError(f"expected temperature as a positive number, got {temperature}")
    if name == GIVEN and (temperature != 1.0 or isinstance(groups, str)):
        raise ValueError(f"expected no temperature and no groups by logits for scores that are given, got {scoring}")
    if isinstance(groups, int) and groups < 1:
        raise ValueError(f"expected num_groups of at least 1, got {groups}")
    if not isinstance(groups, int) and groups not in (None, "prediction", "confidence"):
        raise ValueError(f"expected groups as None, 'prediction' or 'confidence', got {groups!r}")
    if not (isinstance(resolution, int) and 1 <= resolution <= FINEST and resolution.bit_count() == 1):
        raise ValueError(f"expected resolution as a power of two from 1 to {FINEST}, got {resolution}")
    return scoring


def bin_scores(preds: Tensor | SampleStats, scoring: ScoreConfig) -> BinnedScores:
    """The place and the group of each sample.

    Args:
        preds: logits of shape (..., C), or their statistics with the extras that the score needs. Samples that are
            not `counted` there are not valid here.
        scoring: how samples are scored and grouped.
    """
    extras, tempered = scores[scoring.name].extras, scoring.temperature != 1.0
    if isinstance(preds, Tensor) and not tempered:
        preds = sample_stats(preds, extras=extras)

    def divided(piece: Tensor) -> tuple[Tensor, ...]:
        return _numbers(
            sample_stats(piece.to(accumulation_dtype(piece.dtype)) / scoring.temperature, extras=extras), scoring
        )

    if isinstance(preds, Tensor):
        found, counted = map_chunks(divided, preds), None  # so that the divided logits take little memory
    elif tempered:
        raise ValueError(f"expected logits for a temperature of {scoring.temperature}, got their statistics")
    else:
        found, counted = _numbers(preds, scoring), preds.counted
    number, prediction, *groups = found
    return BinnedScores(
        score_bin(number, scoring.resolution),
        prediction if scoring.groups == "prediction" else groups[0] if groups else None,
        ~number.isnan() if counted is None else counted & ~number.isnan(),
        prediction,
    )


def join_group(placing: BinnedScores, group: Tensor | None, groups: str | int | None) -> BinnedScores:
    """The placing with the group of each sample, if groups are given. Samples of an unknown group are not valid."""
    if not isinstance(groups, int):
        if group is not None:
            raise ValueError("expected no group, got one; give num_groups= when you make the object")
        return placing
    if group is None:
        raise ValueError(f"expected group=, an integer from 0 to {groups - 1} for each sample, got none")
    group = check_target(group, placing.bin.shape, "group").to(placing.bin)
    known = is_class(group, groups)
    return placing._replace(group=torch.where(known, group, 0), valid=placing.valid & known)


def _numbers(stats: SampleStats, scoring: ScoreConfig) -> tuple[Tensor, ...]:
    """The number that ranks each sample, low for unfamiliar ones, its class, and its group if it is not that."""
    number = scores[scoring.name].number(stats._replace(trials=TRIALS))
    number = -number if scoring.score.startswith("-") else number
    coins = stats.coins
    return (number, coins.prediction, *([confidence_stratum(coins.odds)] if scoring.groups == "confidence" else []))
