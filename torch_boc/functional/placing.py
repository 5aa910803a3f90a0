"""How a sample is scored, placed and grouped for a conformal test."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from ..core.blocks import blockwise
from ..core.precision import accumulator
from .conformal import STRATA, confidence_stratum, score_place
from .evidence import Evidence, flat, gather
from .score import current_name, find_score, need_extras, rank, scores, unsaturated_scores

GROUPINGS = (None, "prediction", "confidence")
FINEST = 2**14
# The number of coin flips of scores that are p-values, whatever the evidence was gathered for.
TRIALS = 100


class Scoring(NamedTuple):
    """How samples are scored and compared; `torch_boc.ConformalTest` documents the fields."""

    score: str
    temperature: float = 1.0
    groups: str | None = None
    resolution: int = 1024

    @property
    def name(self) -> str:
        """The name of the score in the registry."""
        return self.score.removeprefix("-")

    @property
    def sign(self) -> int:
        """-1 if samples with a high score are the unfamiliar ones."""
        return -1 if self.score.startswith("-") else 1

    def num_groups(self, num_classes: int | None) -> int:
        """The number of groups; 0 if it is not known before the number of classes is."""
        if self.groups == "prediction":
            return num_classes or 0
        return 1 if self.groups is None else len(STRATA) + 1

    def impossible_groups(self, num_classes: int) -> int:
        """How many of the first groups no sample can be in: a confidence is at least 1 / C."""
        return sum(edge <= 1 / num_classes for edge in STRATA) if self.groups == "confidence" else 0


class Placing(NamedTuple):
    """Where the samples of a batch are, with one axis.

    Attributes:
        place: the place of the score of each sample, from `score_place`.
        group: the group of each sample, or None if there is one group.
        valid: which samples count: those whose score is a number.
    """

    place: Tensor
    group: Tensor | None
    valid: Tensor

    def pieces(self, size: int) -> Iterator["Placing"]:
        """The samples in pieces of at most `size`."""
        for first in range(0, len(self.place), size):
            yield Placing(*(x if x is None else x[first : first + size] for x in self))  # type: ignore[arg-type]


def check_scoring(scoring: Scoring) -> Scoring:
    """Return `scoring` if a test can be made of it, or raise."""
    name, (_, temperature, groups, resolution) = scoring.name, scoring
    if current_name(name) not in scores:
        raise ValueError(f"expected score among {', '.join(scores)}, got {scoring.score!r}")
    if find_score(name).upside_down:
        raise ValueError(f"expected a score that is higher in-distribution, got {name!r}; use 'log_p_value'")
    if not (temperature > 0 and math.isfinite(temperature)):
        raise ValueError(f"expected temperature as a positive number, got {temperature}")
    if groups not in GROUPINGS:
        raise ValueError(f"expected groups as None, 'prediction' or 'confidence', got {groups!r}")
    if not (isinstance(resolution, int) and 1 <= resolution <= FINEST and resolution.bit_count() == 1):
        raise ValueError(f"expected resolution as a power of two from 1 to {FINEST}, got {resolution}")
    return scoring


def place_samples(preds: Tensor | Evidence, scoring: Scoring) -> Placing:
    """The place and the group of each sample.

    Args:
        preds: logits of shape (..., C), or their evidence, gathered with the extras that the score needs. Samples that
            are not `counted` there are not valid here.
        scoring: how samples are scored and grouped.
    """
    if isinstance(preds, Evidence):
        if scoring.temperature != 1.0:
            raise ValueError(f"expected logits for a temperature of {scoring.temperature}, got their evidence")
        number, *group = _numbers_of(preds._replace(trials=TRIALS), scoring)
        counted = None if preds.counted is None else flat(preds.counted)
    else:
        number, *group = _numbers(preds, scoring)
        counted = None
    return place_numbers(number * scoring.sign, group[0] if group else None, scoring.resolution, counted)


def place_numbers(number: Tensor, group: Tensor | None, resolution: int, counted: Tensor | None = None) -> Placing:
    """The places of samples, from the numbers that rank them; NaN is not valid, and neither is what does not count."""
    number = flat(number)
    valid = ~number.isnan()
    return Placing(
        score_place(number, resolution),
        None if group is None else flat(group),
        valid if counted is None else valid & counted,
    )


def _numbers(rows: Tensor, scoring: Scoring) -> tuple[Tensor, ...]:
    """The number that ranks each sample, and its group if there are groups."""
    if scoring.temperature == 1.0:
        return _numbers_at_one(rows, scoring)

    def tempered(piece: Tensor) -> tuple[Tensor, ...]:
        return _numbers_at_one(piece.to(accumulator(piece.dtype)) / scoring.temperature, scoring)

    return blockwise(tempered, rows)  # so that the divided logits take little memory


def _numbers_at_one(rows: Tensor, scoring: Scoring) -> tuple[Tensor, ...]:
    if scoring.groups is None:
        return tuple(unsaturated_scores(rows, [scoring.name], trials=TRIALS).values())
    return _numbers_of(gather(rows, trials=TRIALS, extras=need_extras([scoring.name])), scoring)


def _numbers_of(evidence: Evidence, scoring: Scoring) -> tuple[Tensor, ...]:
    (number,) = rank(evidence, [scoring.name]).values()
    if scoring.groups is None:
        return (number,)
    by_class = scoring.groups == "prediction"
    return number, evidence.coins.prediction if by_class else confidence_stratum(evidence.coins.odds)
