"""The expected calibration error (ECE) of confidences in equal bins: what chance adds to it, and its interval.

The true error is the error of the same bins with infinitely many samples: sum |e_b|, where e_b is the mean of
right - confidence over all samples, with 0 for the samples outside of bin b. The estimate sum |E_b| is too large,
because chance moves each E_b up or down, and either can add to its absolute value. With the standard error s of E_b,
chance adds in a bin

    mean of |normal(e, s)| - |e|

This is 0.8 s if the true error e of the bin is 0, and nearly 0 if e is many times s.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..functional import summary
from ..functional.summary import error_of_bins
from ..report.claims import NORMAL_QUANTILE
from .bootstrap import bootstrap_interval, replicate
from .judged import JointTally, Judged, JudgedTally, tally_both, tally_judged

# If the error of a bin is below this many standard errors, its true error may be 0. Then chance adds the most, and this
# is what is assumed.
SURELY = 2.0


class BinErrors(NamedTuple):
    """The error of each bin, with its sign, and the standard error."""

    error: Tensor
    spread: Tensor

    @property
    def total(self) -> float:
        """The ECE."""
        return float(error_of_bins(self.error, 1))

    @property
    def unsure(self) -> Tensor:
        """Which bins may have a true error of 0."""
        return self.error.abs() < SURELY * self.spread


class Excess(NamedTuple):
    """The mean of what chance adds to the ECE, and the standard deviation of the ECE."""

    mean: float
    deviation: float


def calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> float:
    """`functional.calibration_error` as a number."""
    return float(summary.calibration_error(confidence, correct, bins))


def chance_error(tally: JudgedTally) -> tuple[float, float]:
    """The error that perfectly calibrated confidences have by chance: its mean, and its 95 % quantile.

    For these, the excess of right predictions in a bin is normal with the variance v = sum p (1 - p). Its absolute
    value has the mean sqrt(2 v / pi) and the variance (1 - 2 / pi) v.

    >>> confidence = torch.full((10_000,), 0.9)
    >>> mean, most = chance_error(tally_judged(Judged(confidence, confidence > 0, confidence), bins=15))
    >>> round(mean, 4), round(most, 4)
    (0.0024, 0.0054)
    """
    variance = _chance_variance(tally)
    mean = float(variance.sqrt().sum()) * math.sqrt(2 / math.pi)
    return mean, mean + 1.645 * math.sqrt(float(variance.sum()) * (1 - 2 / math.pi))


def added_by_chance(errors: BinErrors) -> Excess:
    """What chance adds to the ECE of these samples: the most that is compatible with them.

    If the error of a bin is below two standard errors, its true error is assumed to be 0.
    """
    spread, true = errors.spread, torch.where(errors.unsure, 0.0, errors.error.abs())
    ratio = true / spread / math.sqrt(2)
    mean = spread * math.sqrt(2 / math.pi) * (-ratio.square()).exp() + true * torch.erf(ratio)
    variance = (true.square() + spread.square() - mean.square()).clamp_min(0)
    return Excess(float((mean - true).sum()), math.sqrt(float(variance.sum())))


def bin_errors(tally: JudgedTally) -> BinErrors:
    """The error of each bin and its standard error.

    The standard error is the larger of two: that of the samples, and that of perfectly calibrated confidences. A few
    samples that are all right would have a standard error of nearly 0.
    """
    sums, n = tally.in_bins(), tally.samples
    error = (sums.hits - sums.confidence) / n
    seen = (sums.squares / n - error.square()) / n
    return BinErrors(error, torch.maximum(seen, _chance_variance(tally)).clamp_min(1e-30).sqrt())


def error_interval(tally: JudgedTally, drawn: Tensor) -> tuple[float, float]:
    """The 95 % interval of the true error.

    For the lower end, what chance adds is subtracted. The lower end is 0 if the error is not above the 95 % quantile of
    the error of perfectly calibrated confidences. For the upper end nothing is subtracted, because chance does not
    make the error smaller.

    Args:
        tally: the sums over the samples.
        drawn: (R,) bootstrap replicates of the estimate, to which chance has added once more.
    """
    errors = bin_errors(tally)
    estimate, added = errors.total, added_by_chance(errors)
    high = bootstrap_interval(estimate, drawn.mean(), drawn)[1]
    if estimate <= chance_error(tally)[1]:
        return 0.0, high
    return max(0.0, estimate - added.mean - NORMAL_QUANTILE * added.deviation), high


def error_difference(
    one: Judged, other: Judged, bins: int, replicates: int, numbers: Any
) -> tuple[float, float, float]:
    """`tallied_difference` of judged samples."""
    tallies = tally_judged(one, bins), tally_judged(other, bins)
    return tallied_difference(*tallies, tally_both(one, other, bins), replicates, numbers)


def tallied_difference(
    one: JudgedTally, other: JudgedTally, both: JointTally, replicates: int, numbers: Any
) -> tuple[float, float, float]:
    """The ECE of `one` minus that of `other` on the same samples, with a 95 % interval from the same resamples.

    Chance adds to both errors, and not always the same amount. The interval includes the difference with and without
    these amounts. If both errors of a bin are below two standard errors, the sign of the true errors is not known. The
    difference of the methods in such a bin may then be larger or smaller, by as much as the methods differ there. This
    uncertainty and that of the resamples are added as the root of the sum of squares.
    """
    errors = bin_errors(one), bin_errors(other)
    value = errors[0].total - errors[1].total
    counts, (first, second) = both.filled()

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
    """How much smaller and how much larger the difference could be if the signs of unsure bins were different."""
    unknown = one.unsure & other.unsure
    found, most = one.error.abs() - other.error.abs(), (one.error - other.error).abs()
    return float(((most + found) * unknown).sum()), float(((most - found) * unknown).sum())


def _chance_variance(tally: JudgedTally) -> Tensor:
    """The variance of the error of each bin, for perfectly calibrated confidences."""
    return tally.in_bins().chance / tally.samples**2
