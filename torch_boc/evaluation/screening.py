"""A test that holds: how many samples of each set a conformal test flags, and when a monitor raises its alarm."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..functional.conformal import rate_quantile, threshold_rank
from ..nn.conformal import ConformalTest
from ..nn.drift import DriftMonitor
from ..report.tables import SampleRow, ScreenRow, StreamRow, ThresholdRow
from ..report.words import TESTED_LEVELS, TESTED_SCORES
from .intervals import LEVELS, binomial_interval
from .samples import AnySet, ProbedSet
from .separation import LOST

THRESHOLD_LEVELS = (0.1, 0.05, 0.01, 0.001)
# The chance with which a guaranteed threshold keeps the level.
CONFIDENCE = 0.99
STREAM_ALPHA = 0.01
# So many samples of the test set, and then of an OOD set, are in a stream, if there are as many.
STREAM_KNOWN, STREAM_OTHER = 300, 200
# So many samples of a set are kept: those with the lowest log-odds, and a random choice of the others.
SUSPICIOUS, OTHERS = 100, 900


class Arranged(NamedTuple):
    """What the test is calibrated on, and what it is measured on.

    Attributes:
        name: the split that the test is calibrated on, or "" for a half of the test set.
        held_out: the logits that it is calibrated on, or the evidence of columns.
        samples: how many these are.
        known: the places of the samples of the test set that it is measured on, in random order.
    """

    name: str
    held_out: Any
    samples: int
    known: Tensor


def arrange(test: AnySet, trusted: Mapping[str, AnySet], seed: int) -> Arranged:
    """The first trusted split and the whole test set, or two random halves of the test set.

    The halves do not depend on the samples, whose order in a file may be that of their classes.

    Args:
        test: the test set.
        trusted: calibration splits that the network was not trained on, and that share no samples with the test set.
        seed: of the order of the samples.
    """
    order = _order(len(test), seed)
    for name, data in trusted.items():
        return Arranged(name, data.rows(slice(None)), len(data), order)
    half = len(order) // 2
    return Arranged("", test.rows(order[:half]), half, order[half:])


def _p_values(test: ConformalTest, data: ProbedSet, rows: Tensor | slice = slice(None)) -> Tensor:
    return test.p_values_at(test.place(data.data.rows(rows)))


def _order(samples: int, seed: int) -> Tensor:
    return torch.randperm(samples, generator=torch.Generator().manual_seed(seed))


def screening_tables(
    sets: Sequence[ProbedSet],
    arranged: Arranged,
    *,
    seed: int = 42,
    progress: Callable[[str], object] = lambda message: None,
) -> tuple[list[ScreenRow], list[ThresholdRow], list[StreamRow]]:
    """The rows of the tables `screening`, `thresholds` and `stream`, for the test set and the OOD sets."""
    if not arranged.samples or not len(arranged.known):
        return [], [], []
    lost = LOST if sets[0].data.from_probabilities else ()
    tested = [x for x in TESTED_SCORES if x not in lost and all(x in data.scores for data in sets)]
    rejected = [data.scores["log_p_value"].exp() for data in sets]
    screened = list(_screen_rows(sets, arranged, ("paper", ""), rejected))
    thresholds: list[ThresholdRow] = []
    stream: list[StreamRow] = []
    for score in tested:
        progress(f"conformal test, {score}")
        test = ConformalTest(score, validate_args=False).calibrate(arranged.held_out)
        screened += _screen_rows(sets, arranged, ("conformal", score), [_p_values(test, data) for data in sets])
        thresholds += threshold_rows(test, score)
        stream = stream or _stream_rows(sets, arranged, test, score, seed)
    return screened, thresholds, stream


def _screen_rows(
    sets: Sequence[ProbedSet], arranged: Arranged, test: tuple[str, str], p_values: Sequence[Tensor]
) -> Iterator[ScreenRow]:
    """What a test flags at each level. Of the test set, only the samples that it was not calibrated on count."""
    held_out = arranged.samples
    for alpha in TESTED_LEVELS:
        rank = threshold_rank(held_out, alpha)
        for place, (data, p) in enumerate(zip(sets, p_values, strict=True)):
            p = p if place else p[arranged.known]
            flagged, chance = int((p <= alpha).sum()), math.nan
            share, (low, high) = flagged / len(p), binomial_interval(flagged, len(p))
            if test[0] == "conformal" and rank == 0:
                share = low = high = math.nan
            elif test[0] == "conformal" and place == 0:
                chance = excess_chance(flagged, len(p), rank, held_out)
            kind = "ood" if place else "id"
            yield ScreenRow(*test, alpha, arranged.name, held_out, data.name, kind, len(p), share, low, high, chance)


def threshold_rows(test: ConformalTest, score: str) -> Iterator[ThresholdRow]:
    """The threshold at each common level, and the one that keeps the level with a chance of `CONFIDENCE`."""
    samples = int(test.samples)
    for alpha in THRESHOLD_LEVELS:
        for confidence in (None, CONFIDENCE):
            known = (score, alpha, math.nan if confidence is None else confidence, samples)
            if threshold_rank(samples, alpha, confidence) == 0:
                yield ThresholdRow(*known, *[math.nan] * 4)
                continue
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "far fewer than alpha")  # the table of flagged shares shows it
                found = test.threshold(alpha, confidence=confidence)
            yield ThresholdRow(*known, float(found.score), *_rates(int(found.rank), samples))


@cache
def _rates(rank: int, samples: int) -> tuple[float, ...]:
    """The expected rate of false alarms and its interval, which are the same for every score."""
    return rank / (samples + 1), *(rate_quantile(rank, samples, chance) for chance in LEVELS)


def excess_chance(flagged: int, samples: int, rank: int, held_out: int) -> float:
    """The chance that so many of the samples or more score below the lowest `rank` held-out ones, if all are alike.

    All orders of the x + k - 1 lowest of n + m samples are equally likely, and at most k - 1 of these may be held out:

        Pr{X >= x} = sum_{h < k} C(n, h) C(m, x + k - 1 - h) / C(n + m, x + k - 1)

    >>> round(excess_chance(10, 100, 5, 99), 4), excess_chance(0, 100, 5, 99)
    (0.085, 1.0)
    """
    if flagged == 0:
        return 1.0
    lowest = flagged + rank - 1
    mean = lowest * held_out / (held_out + samples)
    # Terms this far below the mean of h do not count. What is left are a few times the root of the number of samples.
    far = int(mean - 50 * math.sqrt(mean) - 50)
    h = torch.arange(max(0, lowest - samples, far), rank, dtype=torch.float64)
    terms = _log_choose(held_out, h) + _log_choose(samples, lowest - h)
    return min(1.0, float((terms - _log_choose(held_out + samples, h.new_tensor(lowest))).logsumexp(0).exp()))


def _log_choose(n: int, k: Tensor) -> Tensor:
    return math.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)


def _stream_rows(
    sets: Sequence[ProbedSet], arranged: Arranged, test: ConformalTest, score: str, seed: int
) -> list[StreamRow]:
    """The evidence after each sample of a stream that turns from the test set to each OOD set."""
    first = arranged.known[:STREAM_KNOWN]
    rows = []
    for data in sets[1:]:
        others = _order(len(data.data), seed)[:STREAM_OTHER]
        monitor = DriftMonitor(test, STREAM_ALPHA, seed=seed)
        parts = sets[0].data.rows(first), data.data.rows(others)
        evidence = torch.cat([monitor.update(part) for part in parts]).tolist()
        rows += [
            StreamRow(data.name, score, STREAM_ALPHA, i, "id" if i <= len(first) else "ood", value)
            for i, value in enumerate(evidence, start=1)
        ]
    return rows


def sample_rows(sets: Sequence[ProbedSet], arranged: Arranged, *, seed: int = 42) -> list[SampleRow]:
    """At most `SUSPICIOUS` + `OTHERS` samples of each set, the most suspicious first.

    A sample is suspicious if its log-odds are low, which is what the conformal test of the report goes by. The p-values
    are those of that test, and NaN for the samples that it was calibrated on.
    """
    test = ConformalTest(TESTED_SCORES[0], validate_args=False)
    if arranged.samples:
        test.calibrate(arranged.held_out)
    rows = []
    for place, data in enumerate(sets):
        rising = torch.from_numpy(data.scores["log_odds"].numpy().argsort(kind="stable"))
        first, rest = rising[:SUSPICIOUS], rising[SUSPICIOUS:]
        chosen = torch.cat([first, rest[_order(len(rest), seed)[:OTHERS]].sort().values])
        known = chosen if place else arranged.known
        p = _p_values(test, data, chosen) if len(known) and arranged.samples else torch.tensor(torch.nan)
        columns = {
            "row": chosen,
            "suspicious": torch.arange(len(chosen)) < len(first),
            "prediction": data.coins.prediction[chosen],
            "target": torch.full_like(chosen, -1) if data.data.target is None else data.data.target[chosen],
            **{name: getattr(data.coins, name)[chosen] for name in ("confidence", "gap", "concentration")},
            "log_odds": data.scores["log_odds"][chosen],
            "p_value": torch.where(torch.isin(chosen, known), p, torch.nan),
        }
        for values in zip(*(column.tolist() for column in columns.values()), strict=True):
            row = dict(zip(columns, values, strict=True))
            rows.append(SampleRow(set=data.name, kind="ood" if place else "id", **row))
    return rows
