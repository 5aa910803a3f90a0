"""Calibration of each method on the test set: errors with intervals, and reliability curves with bands.

The true ECE is the error of the same bins with infinitely many samples: sum |e_b|, where e_b is the mean of
right - confidence over all samples, with 0 for the samples outside of bin b. The estimate sum |E_b| is too large,
because chance moves each E_b up or down, and either can add to its absolute value. With the standard error s of E_b,
chance adds in a bin

    mean of |normal(e, s)| - |e|

This is 0.8 s if the true error e of the bin is 0, and nearly 0 if e is many times s.
"""

import math
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..calibration import CALIBRATORS, Calibrator
from ..core.tally import equal_bin, log_loss
from ..data.logit_set import ColumnSet
from ..functional.per_sample import sample_stats
from ..functional.summary import binned_error, sum_by_bin
from .inputs import AnySet, ProbedSet, labelled, row_blocks
from .intervals import (
    FEW_ON_A_SIDE,
    Interval,
    binomial_interval,
    bootstrap_interval,
    mean_interval,
    random_numbers,
    replicate,
    with_intervals,
)
from .significance import NORMAL_QUANTILE

# The number of cells in each bin of confidence, for right and for wrong predictions. The bootstrap draws cells.
SUB_CELLS = 64
# If the error of a bin is below this many standard errors, its true error may be 0. Then chance adds the most, and this
# is what is assumed.
SURELY = 2.0


class CalibratedSamples(NamedTuple):
    """For each test sample, the confidence of a method, whether its prediction is right, and the loss of the target."""

    confidence: Tensor
    correct: Tensor
    nll: Tensor


class BinErrors(NamedTuple):
    """What is known of the samples in each bin of confidence, each of shape (bins,).

    Attributes:
        samples: the number of samples.
        hits: the number of right predictions.
        confidence: the sum of the confidences.
        error: the error of the bin, with its sign.
        spread: the standard error of `error`.
        chance: the variance of the error if the confidences were perfectly calibrated.
        unsure: which bins may have a true error of 0.
        total: the ECE.
    """

    samples: Tensor
    hits: Tensor
    confidence: Tensor
    error: Tensor
    spread: Tensor
    chance: Tensor
    unsure: Tensor
    total: float


def calibration_tables(
    test: ProbedSet,
    splits: Mapping[str, AnySet],
    *,
    methods: Collection[str],
    bins: int,
    replicates: int,
    seed: int,
    progress: Callable[[str], object],
) -> tuple[dict[str, list[dict[str, Any]]], dict[tuple[str, str], CalibratedSamples]]:
    """Rows of the tables `calibration` and `reliability`: MSP, then the fitted methods by split, then the others.

    Also the confidences, by split and method.
    """
    table: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    kept: dict[tuple[str, str], CalibratedSamples] = {}
    if test.correct is None:
        return {"calibration": [], "reliability": []}, kept
    first, *rest = [("", method()) for method in CALIBRATORS if not method.needs_fit]
    usable = {} if isinstance(test.data, ColumnSet) else splits
    fitted = [(split, method()) for split in usable for method in CALIBRATORS if method.name in methods]
    for split, method in [first, *fitted, *rest]:
        progress(f"calibration: {method.name}" + (f" on {split}" if split else ""))
        try:
            if split:
                method.fit(*labelled(splits[split]))
        except ValueError as error:
            warnings.warn(f"calibration split {split!r}: {error}; {method.name} is left out", stacklevel=3)
            continue
        judged = _apply(method, test)
        names = {"split": split, "method": method.name}
        row, curve = calibration_rows(judged, bins, replicates, random_numbers(seed, "calibration", split, method.name))
        table.append(names | row | {"temperature": method.temperature})
        curves += [names | point for point in curve]
        kept[split, method.name] = judged._replace(nll=judged.nll[:0])
    progress("calibration: differences")
    base = "", first[1].name
    for row in table:
        one = row["split"], row["method"]
        numbers = random_numbers(seed, "difference", *one, *base)
        difference = error_difference(kept[one], kept[base], bins, replicates, numbers)
        row |= zip((f"ece_versus_msp{end}" for end in ("", "_low", "_high")), difference, strict=True)
    return {"calibration": table, "reliability": curves}, kept


def _apply(method: Calibrator, test: ProbedSet) -> CalibratedSamples:
    """Apply the method to the test set, block by block. If it gives no logits, the loss is that of the raw logits."""
    assert test.nll is not None
    assert test.correct is not None
    confidence = method.of_coins(test.coins)
    if confidence is not None:  # it learns nothing, and the coins are known
        return CalibratedSamples(confidence, test.correct, test.nll)
    parts = []
    for logits, target, nll in row_blocks(*labelled(test.data), test.nll):
        result = method.calibrate(logits)
        if result.logits is not None:
            stats = sample_stats(result.logits, target)
            assert stats.distance is not None
            nll = log_loss(stats.coins.odds, stats.distance)
        parts.append(CalibratedSamples(result.confidence.double(), result.prediction == target, nll))
    return CalibratedSamples(*map(torch.cat, zip(*parts, strict=True)))


def calibration_rows(
    judged: CalibratedSamples, bins: int, replicates: int, numbers: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The errors with their intervals and the accuracy, and the points of the reliability curve."""
    errors, n = bin_errors(judged, bins), len(judged.correct)
    counts, (bin_of, right, confidence, brier) = _cells(judged, bins)
    member = (bin_of.unsqueeze(1) == torch.arange(bins)).double()

    def statistics(drawn: Tensor) -> Tensor:
        """From counts (R, cells), the ECE, the Brier score and the accuracy of each bin: (R, 2 + bins)."""
        inside, hits = drawn @ member, drawn @ (member * right.unsqueeze(1))
        ece = binned_error(hits - drawn @ (member * confidence.unsqueeze(1)), drawn[0].sum())
        return torch.cat([ece.unsqueeze(1), (drawn @ brier / n).unsqueeze(1), hits / inside], 1)

    observed, drawn = replicate(statistics, [counts], replicates, numbers)
    squares = (judged.confidence.double() - judged.correct.double()).square()
    (mean_chance, most_chance), (added, deviation) = chance_error(errors), _added_by_chance(errors)
    # For the lower end of the true error, what chance adds is subtracted; it is 0 if perfectly calibrated confidences
    # may have such an error. For the upper end nothing is subtracted: chance does not make the error smaller.
    low = max(0.0, errors.total - added - NORMAL_QUANTILE * deviation) if errors.total > most_chance else 0.0
    high = max(bootstrap_interval(errors.total, drawn[:, 0].mean(), drawn[:, 0])[1], rare_error(judged))
    values = {"ece": errors.total, "nll": float(judged.nll.double().mean()), "brier": float(squares.mean())}
    intervals = {
        "ece": (low, high),
        "nll": mean_interval(judged.nll, replicates, numbers, (0.0, math.inf)),
        "brier": bootstrap_interval(values["brier"], observed[1], drawn[:, 1]),
    }
    row = with_intervals(values, intervals) | {"accuracy": float(judged.correct.double().mean())}
    row["ece_chance"] = mean_chance
    curve: list[dict[str, Any]] = []
    means = zip(errors.samples.tolist(), errors.confidence / errors.samples, errors.hits / errors.samples, strict=True)
    for i, (samples, mean, accuracy) in enumerate(means):
        point = {"bin_low": i / bins, "bin_high": (i + 1) / bins, "samples": int(samples), "confidence": float(mean)}
        around = {"accuracy": bootstrap_interval(float(accuracy), accuracy, drawn[:, 2 + i])}
        curve.append(point | with_intervals({"accuracy": float(accuracy)}, around))
    return row, curve


def rare_error(judged: CalibratedSamples) -> float:
    """The largest calibration error that the number of wrong predictions allows, if few are wrong or few are right.

    No ECE is below the difference of mean confidence and accuracy. Resamples of no mistakes have none, but there may be
    as many as the interval of Clopper and Pearson says.
    """
    n, right = len(judged.correct), int(judged.correct.sum())
    if min(right, n - right) >= FEW_ON_A_SIDE:
        return 0.0
    low, high = binomial_interval(right, n)
    return abs(float(judged.confidence.double().mean()) - (high if right < FEW_ON_A_SIDE else low))


def _cells(judged: CalibratedSamples, bins: int) -> tuple[Tensor, Tensor]:
    """For each cell with samples, their number; and their bin, correctness, mean confidence and mean Brier score."""
    confidence, hit, size = judged.confidence.double(), judged.correct.double(), bins * SUB_CELLS
    home = equal_bin(confidence, bins)
    # equal_bin(confidence, size) could put a confidence at the edge of a bin into a cell of another bin, by rounding.
    within = (confidence * size).ceil().nan_to_num(1.0).long() - 1 - home * SUB_CELLS
    place = home * SUB_CELLS + within.clamp(0, SUB_CELLS - 1) + judged.correct * size
    columns = torch.stack([torch.ones_like(confidence), confidence, (confidence - hit).square()])
    cells = sum_by_bin(place.expand(3, -1), columns, 2 * size)
    filled = cells[0].nonzero().flatten()
    counts, means = cells[0, filled], cells[1:, filled] / cells[0, filled]
    return counts, torch.stack([(filled % size // SUB_CELLS).double(), (filled >= size).double(), *means])


def bin_errors(judged: CalibratedSamples, bins: int) -> BinErrors:
    """The errors of the bins.

    The standard error is the larger of two: that of the samples, and that of perfectly calibrated confidences, whose
    excess of right predictions has the variance sum p (1 - p). A few samples that are all right would have a standard
    error of nearly 0.
    """
    p, hit, n = judged.confidence.double(), judged.correct.double(), len(judged.correct)
    columns = torch.stack([torch.ones_like(p), hit, p, (hit - p).square(), p * (1 - p)])
    samples, hits, confidence, squares, chance = sum_by_bin(equal_bin(p, bins).expand(5, -1), columns, bins)
    error, chance = (hits - confidence) / n, chance / n**2
    spread = torch.maximum((squares / n - error.square()) / n, chance).clamp_min(1e-30).sqrt()
    total = float(error.abs().sum())
    return BinErrors(samples, hits, confidence, error, spread, chance, error.abs() < SURELY * spread, total)


def chance_error(errors: BinErrors) -> Interval:
    """The error that perfectly calibrated confidences have by chance: its mean, and its 95 % quantile.

    For these, the excess of right predictions in a bin is normal with the variance v. Its absolute value has the mean
    sqrt(2 v / pi) and the variance (1 - 2 / pi) v.

    >>> confidence = torch.full((10_000,), 0.9)
    >>> mean, most = chance_error(bin_errors(CalibratedSamples(confidence, confidence > 0, confidence), bins=15))
    >>> round(mean, 4), round(most, 4)
    (0.0024, 0.0054)
    """
    mean = float(errors.chance.sqrt().sum()) * math.sqrt(2 / math.pi)
    return mean, mean + 1.645 * math.sqrt(float(errors.chance.sum()) * (1 - 2 / math.pi))


def _added_by_chance(errors: BinErrors) -> tuple[float, float]:
    """The mean of what chance adds to the ECE, and the standard deviation of the ECE: the most that is compatible.

    If the error of a bin is below two standard errors, its true error is assumed to be 0.
    """
    spread, true = errors.spread, torch.where(errors.unsure, 0.0, errors.error.abs())
    ratio = true / spread / math.sqrt(2)
    mean = spread * math.sqrt(2 / math.pi) * (-ratio.square()).exp() + true * torch.erf(ratio)
    variance = (true.square() + spread.square() - mean.square()).clamp_min(0)
    return float((mean - true).sum()), math.sqrt(float(variance.sum()))


def error_difference(
    one: CalibratedSamples, other: CalibratedSamples, bins: int, replicates: int, numbers: Any
) -> tuple[float, float, float]:
    """The ECE of `one` minus that of `other` on the same samples, with a 95 % interval from the same resamples.

    Chance adds to both errors, and not always the same amount. The interval includes the difference with and without
    these amounts. If both errors of a bin are below two standard errors, the sign of the true errors is not known. The
    difference of the methods in such a bin may then be larger or smaller, by as much as the methods differ there. This
    uncertainty and that of the resamples are added as the root of the sum of squares.
    """
    if one is other:
        return 0.0, 0.0, 0.0
    first, second = bin_errors(one, bins), bin_errors(other, bins)
    value = first.total - second.total
    # The samples of a cell have the same bin and the same correctness, for both methods.
    home = equal_bin(one.confidence, bins) * bins + equal_bin(other.confidence, bins)
    right, others = one.correct.double(), other.correct.double()
    columns = torch.stack([torch.ones_like(right), right - one.confidence.double(), others - other.confidence.double()])
    cells = sum_by_bin((home * 4 + right.long() * 2 + others.long()).expand(3, -1), columns, 4 * bins**2)
    filled = cells[0].nonzero().flatten()
    counts, means = cells[0, filled], cells[1:, filled] / cells[0, filled]
    # For each method, the mean errors of the cells in their bins: (cells, bins).
    places = torch.stack([filled // (4 * bins), filled // 4 % bins]).unsqueeze(-1)
    ours, theirs = (places == torch.arange(bins)) * means.unsqueeze(-1)

    def difference(drawn: Tensor) -> Tensor:
        samples = drawn[0].sum()
        return binned_error(drawn @ ours, samples) - binned_error(drawn @ theirs, samples)

    _, drawn = replicate(difference, [counts], replicates, numbers)
    low, high = bootstrap_interval(value, drawn.mean(), drawn, (-1.0, 1.0))
    shift = _added_by_chance(second)[0] - _added_by_chance(first)[0]
    unknown = first.unsure & second.unsure
    gained, most = first.error.abs() - second.error.abs(), (first.error - second.error).abs()
    down, up = float(((most + gained) * unknown).sum()), float(((most - gained) * unknown).sum())
    low = value - math.hypot(value - low, down) + min(shift, 0.0)
    high = value + math.hypot(high - value, up) + max(shift, 0.0)
    return value, max(-1.0, low), min(1.0, high)
