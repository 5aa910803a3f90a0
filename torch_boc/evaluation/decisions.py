"""Decisions: flags of conformal tests, delays of a drift monitor, accepted and reviewed predictions, classes."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._optional import require
from ..functional.conformal import excess_chance, rate_quantile, threshold_rank
from ..functional.score_bins import BinnedScores, score_bin
from ..functional.selective import required_samples
from ..nn.acceptance import Acceptance
from ..nn.conformal import ConformalTest
from ..nn.drift import DriftMonitor
from ..report.results import where
from .inputs import AnySet, ProbedSet, sorted_by_numpy
from .intervals import LEVELS, binomial_interval
from .significance import LEVEL, NORMAL_QUANTILE

# What the conformal test compares, and the levels at which shares are measured. None of these scores may depend on the
# number of coin flips.
TESTED_SCORES = ("gen", "log_odds", "energy", "tempered_dominance")
TESTED_LEVELS = (LEVEL, 0.01)
STREAM_ALPHA = 0.01
# The samples of the test set, and then of an OOD set, in a stream, if there are as many; and the number of streams, of
# whose detection delays the median is taken.
STREAM_ID, STREAM_OOD, STREAMS = 300, 200, 25
# The samples with the lowest log odds of each set that are kept.
SUSPICIOUS = 100
# The guaranteed errors, and the probability with which they are not exceeded.
ERRORS, DELTA = (0.01, 0.02, 0.05), 0.05
# The shares to review, in thousandths, and the number of confusions that are kept.
SHARES = (*range(0, 50, 5), *range(50, 1000, 10))
CONFUSIONS = 20


class HeldOutSplit(NamedTuple):
    """What the test is calibrated on, and what it is measured on.

    Attributes:
        name: the split that the test is calibrated on, or "" for a half of the test set.
        held_out: the logits that it is calibrated on, or the statistics of columns.
        samples: how many these are.
        tested: the indices of the test samples that it is measured on, in random order.
        target: the targets of the held-out samples; None if they are not known.
    """

    name: str
    held_out: Any
    samples: int
    tested: Tensor
    target: Tensor | None


def choose_held_out(test: AnySet, trusted: Mapping[str, AnySet], seed: int) -> HeldOutSplit:
    """The first trusted split and the whole test set, or two random halves of the test set.

    The halves do not depend on the samples, whose order in a file may be that of their classes.

    Args:
        test: the test set.
        trusted: calibration splits that the model was not trained on, without samples of the test set.
        seed: of the order of the samples.
    """
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))
    for name, data in trusted.items():
        return HeldOutSplit(name, data.rows(slice(None)), len(data), order, data.target)
    half = len(order) // 2
    target = None if test.target is None else test.target[order[:half]]
    return HeldOutSplit("", test.rows(order[:half]), half, order[half:], target)


def screening_tables(
    sets: Sequence[ProbedSet],
    split: HeldOutSplit,
    *,
    seed: int = 42,
    progress: Callable[[str], object] = lambda message: None,
) -> dict[str, list[Any]]:
    """The rows of the tables `screening`, `stream`, `delays` and `samples`."""
    tables: dict[str, list[Any]] = {x: [] for x in ("screening", "stream", "delays", "samples")}
    ranks = [torch.full_like(data.coins.odds, torch.nan) for data in sets]
    if split.samples and len(split.tested):
        tables["screening"] += _screen_rows(sets, split, "", [data.scores["log_p_value"].exp() for data in sets])
        tested = [score for score in TESTED_SCORES if all(score in data.scores for data in sets)]
        for score in tested:
            progress(f"conformal test, {score}")
            test = ConformalTest(score, validate_args=False).calibrate(split.held_out)
            p_values = []
            for data in sets:  # the numbers that rank the samples are known
                number = data.scores[score]
                place = score_bin(number, test.scoring.resolution)
                p_values.append(test.test(BinnedScores(place, None, ~number.isnan())))
            tables["screening"] += _screen_rows(sets, split, score, p_values)
            if score == tested[0]:
                tables["stream"], tables["delays"] = _stream_tables(sets, split, test, score, seed)
                ranks[0][split.tested] = p_values[0][split.tested]
                ranks[1:] = p_values[1:]
    for data, p in zip(sets, ranks, strict=True):
        tables["samples"] += sample_rows(data, p, "id" if data is sets[0] else "ood")
    return tables


def find_violations(split: HeldOutSplit, tables: Mapping[str, Any]) -> list[str]:
    """What refutes the guarantees on the test set, among "error", "flagged" and "drift"; every statement follows this.

    The lower end of the error among accepted predictions exceeds the guaranteed one; a conformal test flags more than
    chance explains (by Bonferroni); the drift monitor raises its alarm before the first OOD sample. Two random halves
    of one set are exchangeable, so the last two are then chance.
    """
    accepted, chances = tables["acceptance"], where(tables["screening"], kind="id")["chance"].dropna()
    refuted = {
        "error": (accepted["wrong_low"] > accepted["error"]).any(),
        "flagged": split.name and (chances * len(chances) < LEVEL).any(),
        "drift": split.name and (where(tables["stream"], kind="id")["evidence"] >= -math.log(STREAM_ALPHA)).any(),
    }
    return [name for name, violated in refuted.items() if violated]


def acceptance_rows(test: ProbedSet, split: HeldOutSplit) -> Iterator[tuple[Any, ...]]:
    """The accepted share of the test set at each error, and the error of it."""
    if test.correct is None or not (split.samples and len(split.tested)):
        return
    accept, number = Acceptance(validate_args=False), test.scores["log_odds"][split.tested]
    accept.update(split.held_out, split.target)
    place, right = score_bin(number, accept.scoring.resolution), test.correct[split.tested]
    for error in ERRORS:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "nothing can be accepted")  # the report says so
            score = float(accept.threshold(error, delta=DELTA).score)
            accepted = accept.accept(BinnedScores(place, None, ~number.isnan()), error, DELTA)
        shares = []
        for mask in (accepted, ~right[accepted]):
            some = int(mask.sum())
            shares += [some / len(mask), *binomial_interval(some, len(mask))] if len(mask) else [math.nan] * 3
        held_out = split.name, split.samples, required_samples(0, error, DELTA)
        yield error, 1 - DELTA, *held_out, score, len(number), *shares


def _screen_rows(
    sets: Sequence[ProbedSet], split: HeldOutSplit, score: str, p_values: Sequence[Tensor]
) -> Iterator[tuple[Any, ...]]:
    """What a test flags at each level: the conformal test of a score, or the paper's test without one.

    Of the test set, only the samples that the test was not calibrated on count.
    """
    for alpha in TESTED_LEVELS:
        rank, rates = threshold_rank(split.samples, alpha), _rates(split.samples, alpha) if score else (math.nan,) * 2
        for place, (data, p) in enumerate(zip(sets, p_values, strict=True)):
            p = p if place else p[split.tested]
            flagged, chance = int((p <= alpha).sum()), math.nan
            shares = flagged / len(p), *binomial_interval(flagged, len(p))
            if score and rank == 0:
                shares = (math.nan, math.nan, math.nan)
            elif score:
                chance = excess_chance(flagged, len(p), rank, split.samples)
            test = "conformal" if score else "paper", score, alpha, split.name, split.samples
            yield *test, data.name, "ood" if place else "id", len(p), *shares, *rates, chance


@cache
def _rates(samples: int, alpha: float) -> tuple[float, float]:
    """The interval of the FPR over the draw of so many held-out samples, which is the same for every score."""
    rank = threshold_rank(samples, alpha)
    low, high = (rate_quantile(rank, samples, level) if rank else math.nan for level in LEVELS)
    return low, high


def _stream_tables(
    sets: Sequence[ProbedSet], split: HeldOutSplit, test: ConformalTest, score: str, seed: int
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The evidence after each sample of a stream that turns from the test set to each OOD set, and the delays of many.

    A stream whose alarm comes before its first OOD sample counts as early, and one without an alarm as missed.
    """
    tested, many = split.tested, min(len(split.tested), STREAM_ID)
    rows: list[tuple[Any, ...]] = []
    delays: list[tuple[Any, ...]] = []
    for data in sets[1:]:
        alarms, missed = list[float](), 0
        for number in range(seed, seed + STREAMS):
            generator = torch.Generator().manual_seed(number)
            others = torch.randperm(len(data.data), generator=generator)[:STREAM_OOD]
            first = tested if number == seed else tested[torch.randperm(len(tested), generator=generator)]
            monitor = DriftMonitor(test, STREAM_ALPHA, seed=number)
            evidence = [*monitor.update(sets[0].data.rows(first[:many])), *monitor.update(data.data.rows(others))]
            if number == seed:
                for at, value in enumerate(evidence, 1):
                    rows.append((data.name, score, STREAM_ALPHA, at, "id" if at <= many else "ood", float(value)))
            missed += not bool(monitor.alarm)
            alarms.append(int(monitor.alarm_at) - many if bool(monitor.alarm) else math.inf)
        late = sorted(delay for delay in alarms if delay > 0)
        middle = late[(len(late) - 1) // 2] if late else math.nan
        last = late[math.ceil(0.9 * len(late)) - 1] if late else math.nan
        delays.append((data.name, score, STREAM_ALPHA, STREAMS, STREAMS - len(late), missed, middle, last))
    return rows, delays


def sample_rows(data: ProbedSet, p_values: Tensor, kind: str) -> Iterator[tuple[Any, ...]]:
    """The least confident samples of a set, with their conformal p-values, and the first of their notes as a name."""
    least = torch.from_numpy(data.scores["log_odds"].numpy().argsort(kind="stable")[:SUSPICIOUS].copy())
    target = torch.full_like(least, -1) if data.data.target is None else data.data.target[least]
    columns = [least, data.coins.prediction[least], target, data.coins.confidence[least], data.coins.gap[least]]
    columns += [data.scores["log_odds"][least], p_values[least]]
    numbers, texts = data.data.row_numbers, [x for x in data.data.notes.values() if isinstance(x, list)]
    for place, *values in zip(*map(Tensor.tolist, columns), strict=True):
        row = place if numbers is None else int(numbers[place])
        yield data.name, kind, row, str(texts[0][place]) if texts else "", *values


def review_rows(sets: Sequence[ProbedSet]) -> list[tuple[Any, ...]]:
    """What a review of the least confident samples detects, and the accuracy of the rest of the test set."""
    log_odds, rows = sets[0].scores["log_odds"], []
    thresholds = sorted_by_numpy(log_odds)[torch.tensor(SHARES) * len(log_odds) // 1000]
    confidence = thresholds.sigmoid().tolist()
    for data in sets:
        below = torch.searchsorted(sorted_by_numpy(data.scores["log_odds"]), thresholds)
        detected, accuracy = below / len(data.data), torch.full_like(thresholds, torch.nan)
        if data is sets[0]:
            detected = accuracy
            if data.correct is not None:
                wrong = sorted_by_numpy(log_odds[~data.correct])
                errors = torch.searchsorted(wrong, thresholds)
                detected, accuracy = errors / len(wrong), 1 - (len(wrong) - errors) / (len(log_odds) - below)
        kind = "id" if data is sets[0] else "ood"
        for share, *values in zip(SHARES, confidence, detected.tolist(), accuracy.tolist(), strict=True):
            rows.append((data.name, kind, share / 1000, *values))
    return rows


def class_tables(test: ProbedSet, calibrated: Tensor | None) -> dict[str, Any]:
    """The tables `classes` and `confusions`; the most frequent errors come first."""
    if test.correct is None:
        return {"classes": (), "confusions": ()}
    columns = {"prediction": test.coins.prediction, "target": test.data.target, "precision": test.correct.double()}
    columns |= {"confidence": test.coins.confidence}
    columns["calibrated"] = torch.full_like(test.coins.odds, torch.nan) if calibrated is None else calibrated
    frame_of = require("pandas", purpose="evaluation needs").DataFrame
    samples = frame_of(columns)
    classes = samples.groupby("prediction").mean().reset_index()
    classes["samples"] = samples.groupby("prediction").size().to_numpy()
    # As in `bin_errors`, the larger of two variances: of calibrated confidences, and of these samples; and at least 1.
    p, off = samples["confidence"], samples["precision"] - samples["confidence"]
    sums = frame_of({"chance": p * (1 - p), "square": off**2}).groupby(samples["prediction"]).sum()
    variance = sums.max(axis=1).clip(1)
    classes["excess"] = classes["precision"] - classes["confidence"]
    reach = NORMAL_QUANTILE * variance.to_numpy() ** 0.5
    for end, sign in (("low", -1), ("high", 1)):
        classes[f"excess_{end}"] = classes["excess"] + sign * reach / classes["samples"]
    wrong = samples[samples["precision"] == 0].groupby(["target", "prediction"]).size().reset_index(name="samples")
    most = wrong.sort_values("samples", ascending=False, kind="stable")[:CONFUSIONS]
    return {"classes": classes, "confusions": most.reset_index(drop=True)}
