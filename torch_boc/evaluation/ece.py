"""The expected calibration error (ECE) of confidences in equal bins: what chance adds to it, and how sure it is.

The true error is that of the same bins with infinitely many samples, sum |e_b|, where e_b is the mean over all samples
of right - confidence, taken as 0 for samples outside bin b. The estimate sum |E_b| is too large: chance moves each E_b
to one side or the other, and both add to the sum. With the standard error s of E_b, a bin adds

    mean of |normal(e, s)| - |e|

which is 0.8 s in a bin without error, and vanishes where the error is many s.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..functional import calibration
from ..functional.bins import count, equal_bin
from ..functional.calibration import error_of_bins
from .bootstrap import NORMAL_QUANTILE, bootstrap_interval, replicate

# A bin whose error is below so many standard errors may have none: chance is taken to add the most that it can there.
SURELY = 2.0


class Judged(NamedTuple):
    """What a method says of each test sample, and whether it is right."""

    confidence: Tensor
    correct: Tensor
    nll: Tensor


class BinErrors(NamedTuple):
    """The error of each bin, with its sign, and its standard error."""

    error: Tensor
    spread: Tensor

    @property
    def total(self) -> float:
        """The ECE."""
        return float(error_of_bins(self.error, 1))

    @property
    def unsure(self) -> Tensor:
        """The bins that may have no error."""
        return self.error.abs() < SURELY * self.spread


class Excess(NamedTuple):
    """What chance adds to the ECE: the mean, and the standard deviation of the ECE."""

    mean: float
    deviation: float


def calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> float:
    """`functional.calibration_error` as a number."""
    return float(calibration.calibration_error(confidence, correct, bins))


def chance_error(confidence: Tensor, bins: int = 15) -> tuple[float, float]:
    """The error that chance alone makes of perfectly calibrated confidences: its mean, and what 95 % stay below.

    The excess of right predictions in a bin is then normal with the variance sum p (1 - p), and its absolute value has
    the mean sqrt(2 / pi) and the variance 1 - 2 / pi of that.

    >>> mean, most = chance_error(torch.full((10_000,), 0.9))
    >>> round(mean, 4), round(most, 4)
    (0.0024, 0.0054)
    """
    variance = _chance_variance(confidence.double(), bins)
    mean = float(variance.sqrt().sum()) * math.sqrt(2 / math.pi)
    return mean, mean + 1.645 * math.sqrt(float(variance.sum()) * (1 - 2 / math.pi))


def added_by_chance(errors: BinErrors) -> Excess:
    """What chance adds to the ECE of these samples, at most as far as they tell.

    A bin whose error is below two standard errors is taken to have none.
    """
    spread, true = errors.spread, torch.where(errors.unsure, 0.0, errors.error.abs())
    ratio = true / spread / math.sqrt(2)
    mean = spread * math.sqrt(2 / math.pi) * (-ratio.square()).exp() + true * torch.erf(ratio)
    variance = (true.square() + spread.square() - mean.square()).clamp_min(0)
    return Excess(float((mean - true).sum()), math.sqrt(float(variance.sum())))


def bin_errors(judged: Judged, bins: int) -> BinErrors:
    """The error of each bin and its standard error.

    The latter is the larger of what was seen and of what calibrated confidences would have: a few samples that are all
    right show no variance.
    """
    confidence, place = judged.confidence.double(), equal_bin(judged.confidence, bins)
    difference, n = judged.correct.double() - confidence, len(confidence)
    error = count(place, difference, bins) / n
    seen = (count(place, difference.square(), bins) / n - error.square()) / n
    return BinErrors(error, torch.maximum(seen, _chance_variance(confidence, bins)).clamp_min(1e-30).sqrt())


def error_interval(judged: Judged, bins: int, drawn: Tensor) -> tuple[float, float]:
    """The 95 % interval of the true error.

    The lower end leaves out what chance adds, and is 0 where perfectly calibrated confidences would have such an error
    in 95 % of cases. The upper end takes nothing off: chance never makes the error smaller.

    Args:
        judged: the samples.
        bins: of confidence.
        drawn: (R,) replicates of the estimate by the bootstrap, in which chance adds once more.
    """
    errors = bin_errors(judged, bins)
    estimate, added = errors.total, added_by_chance(errors)
    high = bootstrap_interval(estimate, drawn.mean(), drawn)[1]
    if estimate <= chance_error(judged.confidence, bins)[1]:
        return 0.0, high
    return max(0.0, estimate - added.mean - NORMAL_QUANTILE * added.deviation), high


def error_difference(
    one: Judged, other: Judged, bins: int, replicates: int, numbers: Any
) -> tuple[float, float, float]:
    """The ECE of `one` minus that of `other` on the same samples, with a 95 % interval from the same resamples.

    Chance adds to both, and not always alike: the interval holds the difference with and without what it adds. And in a
    bin where neither error is beyond two standard errors, nobody knows which way the truth lies: the two methods may
    differ by as much as they do there, in either direction. This is added to what the resamples show, in squares.
    """
    errors = bin_errors(one, bins), bin_errors(other, bins)
    value = errors[0].total - errors[1].total
    counts, (first, second) = _joint_cells(one, other, bins)

    def difference(drawn: Tensor) -> Tensor:
        samples = drawn[0].sum()
        return error_of_bins(drawn @ first, samples) - error_of_bins(drawn @ second, samples)

    _, drawn = replicate(difference, [counts], replicates, numbers)
    low, high = bootstrap_interval(value, drawn.mean(), drawn, (-1.0, 1.0))
    shift = added_by_chance(errors[1]).mean - added_by_chance(errors[0]).mean
    down, up = _undecided(*errors)
    low = value - math.hypot(value - low, down) + min(shift, 0.0)
    high = value + math.hypot(high - value, up) + max(shift, 0.0)
    return value, max(-1.0, low), min(1.0, high)


def _undecided(one: BinErrors, other: BinErrors) -> tuple[float, float]:
    """How much less and more the difference could be, if errors turned round in the bins that tell no direction."""
    unknown = one.unsure & other.unsure
    found, most = one.error.abs() - other.error.abs(), (one.error - other.error).abs()
    return float(((most + found) * unknown).sum()), float(((most - found) * unknown).sum())


def _joint_cells(one: Judged, other: Judged, bins: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """How many samples share the bins and the correctness of both, and of each cell the error in each bin of either."""
    places = [equal_bin(x.confidence, bins) for x in (one, other)]
    cell = (places[0] * bins + places[1]) * 4 + one.correct.long() * 2 + other.correct.long()
    counts = count(cell, torch.ones_like(cell), 4 * bins**2)
    filled = counts.nonzero().flatten()
    errors = []
    for judged, bin_of in ((one, filled // (4 * bins)), (other, filled // 4 % bins)):
        difference = judged.correct.double() - judged.confidence.double()
        mean = count(cell, difference, 4 * bins**2)[filled] / counts[filled]
        errors.append((bin_of.unsqueeze(1) == torch.arange(bins)) * mean.unsqueeze(1))
    return counts[filled], (errors[0], errors[1])


def _chance_variance(confidence: Tensor, bins: int) -> Tensor:
    """Of the error in each bin, if the confidences are perfectly calibrated."""
    return count(equal_bin(confidence, bins), confidence * (1 - confidence), bins) / len(confidence) ** 2
