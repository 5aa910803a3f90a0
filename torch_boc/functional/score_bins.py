"""The bins that scores are counted in, and where a conformal test finds each sample: its score, bin and group.

Bins are fixed beforehand and cover all real numbers, so that the counts of batches and processes add up. The bits of a
float32, read as an integer, have the order of the magnitudes, and the leading bits are the bin.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.dtypes import constant, to_wide
from ..core.tally import is_class
from .checks import check_target
from .per_sample import SampleStats, sample_stats
from .registry import scores

MAGNITUDE = 0x7FFFFFFF  # all bits of a float32 except its sign
# Numbers whose magnitude is below 2 to the first, or at least 2 to the second, share the outermost bins of their sign.
EXPONENTS, EVERY_EXPONENT = (-32, 16), (-127, 129)
# The confidences that separate the groups of `groups="confidence"`.
STRATA = (0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 0.9999)
FINEST = 2**14
# The number of coin flips of scores that are p-values, whatever the statistics were gathered for.
TRIALS = 100
# The score of tests that are given the numbers themselves.
GIVEN = "given"


def num_bins(resolution: float, exponents: tuple[int, int] = EXPONENTS) -> int:
    """The number of bins with `resolution` bins between a number and its double."""
    return int(2 * (exponents[1] - exponents[0]) * resolution)


def score_bin(scores: Tensor, resolution: float, exponents: tuple[int, int] = EXPONENTS) -> Tensor:
    """The bin of each score, int64 in [0, num_bins(resolution)). A higher score never has a lower bin.

    Args:
        scores: any shape; NaN has any bin.
        resolution: the number of bins between a number and its double, a power of two.
        exponents: those of the magnitudes that bins tell apart.

    >>> score_bin(torch.tensor([-9.0, -1.0, 0.0, 1.0, 1.5, 2.0]), 2)
    tensor([ 25,  31,  96, 160, 161, 162])
    """
    half = num_bins(resolution, exponents) // 2
    if torch.compiler.is_exporting():
        above, negative = _exported_bin(scores, int(resolution))
        return torch.where(negative, half - 1 - above, half + above).long()
    pattern = (scores.to(torch.float32) + 0.0).view(torch.int32)  # -0.0 + 0.0 is 0.0
    first = int((127 + exponents[0]) * resolution)
    above = ((pattern & MAGNITUDE) >> _dropped_bits(resolution)).clamp_(first, first + half - 1) - first
    return (above ^ (pattern >> 31)).add_(half).long()  # -1 - above if the sign is set


def _dropped_bits(resolution: float) -> int:
    """How many of the last bits of a float32 do not matter for its bin."""
    return 24 - math.frexp(resolution)[1]


def _exported_bin(scores: Tensor, resolution: int) -> tuple[Tensor, Tensor]:
    """How many bins the magnitude of each score is above the lowest magnitude, and which scores are negative.

    The bits of a float are read by comparisons with powers of two, because ONNX cannot see bits. Every step is exact.
    """
    lowest, highest = EXPONENTS
    number = scores.nan_to_num(torch.inf, torch.inf, -torch.inf).to(torch.float32).to(torch.float64)
    size = number.abs().clamp(2.0**lowest, 2.0**highest * (1.0 - 2.0**-24)) * 2.0**-lowest
    powers = torch.tensor([2.0**exponent for exponent in range(highest - lowest)], dtype=torch.float64).to(size.device)
    exponent = torch.bucketize(size, powers, right=True) - 1
    fraction = size / powers[exponent] - 1.0
    return exponent * resolution + (fraction * resolution).floor().long(), number < 0


def bin_edges(resolution: float, exponents: tuple[int, int] = EXPONENTS) -> Tensor:
    """The lowest number of each bin, and inf after the last, in float64. Scores below it are in lower bins.

    >>> bin_edges(2)[torch.tensor([0, 96, 160, 161, 162, -1])]
    tensor([  -inf, 0.0000, 1.0000, 1.5000, 2.0000,    inf], dtype=torch.float64)
    """
    half = num_bins(resolution, exponents) // 2
    signed, offset = torch.arange(-half, half + 1), int((127 + exponents[0]) * resolution)
    ordered = torch.where(signed < 0, signed - offset, signed + offset) << _dropped_bits(resolution)
    pattern = torch.where(ordered < 0, ordered ^ MAGNITUDE, ordered)
    edges = pattern.to(torch.int32).view(torch.float32).double()
    edges[half], edges[0], edges[-1] = 0.0, -torch.inf, torch.inf
    return edges


def count_bins(bin_index: Tensor, valid: Tensor, bins: int, group: Tensor | None = None, groups: int = 1) -> Tensor:
    """The number of samples of each group in each bin, int64 of shape (groups, bins), of those that are `valid`."""
    key = (bin_index if group is None else group * bins + bin_index).reshape(-1)
    return key.new_zeros(groups * bins).scatter_add(0, key, valid.reshape(-1).long()).view(groups, bins)


def confidence_stratum(odds: Tensor) -> Tensor:
    """The group of each sample by its confidence: how many of `STRATA` the confidence reaches.

    >>> confidence_stratum(torch.tensor([1.0, 0.01]))  # confidences of 0.5 and 0.99
    tensor([3, 9])
    """
    confidence = to_wide(odds).add(1.0).reciprocal()
    return torch.bucketize(confidence, constant(STRATA, confidence), right=True)


class ScoreConfig(NamedTuple):
    """How samples are scored and compared; `torch_boc.ConformalTest` documents the fields."""

    score: str
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
    """The bins of the samples of a batch. All tensors have the shape of the logits without the class axis.

    Attributes:
        bin: the bin of the score of each sample, from `score_bin`.
        group: the group of each sample, or None if there is one group.
        valid: which samples count: those whose score is a number, and whose group is known.
        prediction: the predicted class of each sample, or None if it is not counted.
    """

    bin: Tensor
    group: Tensor | None
    valid: Tensor
    prediction: Tensor | None = None


def bin_scores(preds: Tensor | SampleStats, scoring: ScoreConfig) -> BinnedScores:
    """The bin and the group of each sample.

    Args:
        preds: logits of shape (..., C), or their statistics with the extras that the score needs. Samples that are
            not `counted` there are not valid here.
        scoring: how samples are scored and grouped.
    """
    stats = sample_stats(preds, extras=scores[scoring.name].extras) if isinstance(preds, Tensor) else preds
    number, prediction = scores[scoring.name].number(stats._replace(trials=TRIALS)).detach(), stats.coins.prediction
    number = -number if scoring.score.startswith("-") else number
    valid = number == number  # not NaN
    group = prediction if scoring.groups == "prediction" else None
    if scoring.groups == "confidence":
        group = confidence_stratum(stats.coins.odds)
    valid = valid if stats.counted is None else stats.counted & valid
    return BinnedScores(score_bin(number, scoring.resolution), group, valid, prediction)


def join_group(binned: BinnedScores, group: Tensor | None, groups: str | int | None) -> BinnedScores:
    """The binned scores with the given groups, if the object has any. Samples of an unknown group are not valid."""
    if not isinstance(groups, int):
        if group is not None:
            raise ValueError("expected no group, got one; make the object with groups=, their number")
        return binned
    if group is None:
        raise ValueError(f"expected group=, an integer from 0 to {groups - 1} for each sample, got none")
    group = check_target(group, binned.bin.shape, "group").to(binned.bin)
    in_group = is_class(group, groups)
    return binned._replace(group=torch.where(in_group, group, 0), valid=binned.valid & in_group)
