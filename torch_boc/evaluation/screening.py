"""A test that holds: how many samples of each set a conformal test flags, and when a monitor raises its alarm."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from ..data.sets import LogitSet
from ..functional.conformal import rate_quantile, threshold_rank
from ..nn.conformal import ConformalTest
from ..nn.drift import DriftMonitor
from ..report.choices import TESTED_LEVELS, TESTED_SCORES
from ..report.tables import ScreenRow, StreamRow, ThresholdRow
from .detection import LOST
from .exact import binomial_interval
from .probing import ProbedSet

THRESHOLD_LEVELS = (0.1, 0.05, 0.01, 0.001)
# The chance with which a guaranteed threshold keeps the level.
CONFIDENCE = 0.99
STREAM_ALPHA = 0.01
# So many samples of the test set, and then of an OOD set, are in a stream, if there are as many.
STREAM_KNOWN, STREAM_OTHER = 300, 200
ENDS = (0.025, 0.975)


class Arranged(NamedTuple):
    """What the test is calibrated on, and what it is measured on.

    Attributes:
        name: the split that the test is calibrated on, or "" for a half of the test set.
        held_out: the logits that it is calibrated on.
        known: the places of the samples of the test set that it is measured on, in random order.
    """

    name: str
    held_out: Tensor
    known: Tensor


def screening_tables(
    sets: Sequence[ProbedSet],
    trusted: Mapping[str, LogitSet],
    *,
    seed: int = 42,
    progress: Callable[[str], object] = lambda message: None,
) -> tuple[list[ScreenRow], list[ThresholdRow], list[StreamRow]]:
    """The rows of the tables `screening`, `thresholds` and `stream`.

    Args:
        sets: the test set, and the OOD sets.
        trusted: calibration splits that the network was not trained on, and that share no samples with the test set.
        seed: of the order of the samples.
        progress: called with a few words.
    """
    arranged = arrange(sets[0], trusted, seed)
    if not len(arranged.held_out) or not len(arranged.known):
        return [], [], []
    lost = LOST if sets[0].data.from_probabilities else ()
    screened = list(_paper_rows(sets, arranged))
    thresholds: list[ThresholdRow] = []
    stream: list[StreamRow] = []
    for score in (name for name in TESTED_SCORES if name not in lost):
        progress(f"conformal test, {score}")
        test = ConformalTest(score, validate_args=False).calibrate(arranged.held_out)
        screened += _conformal_rows(sets, arranged, test)
        thresholds += threshold_rows(test)
        stream = stream or _stream_rows(sets, arranged, test, seed)
    return screened, thresholds, stream


def arrange(test: ProbedSet, trusted: Mapping[str, LogitSet], seed: int) -> Arranged:
    """The first trusted split and the whole test set, or two random halves of the test set.

    The halves do not depend on the samples, whose order in a file may be that of their classes.
    """
    order = torch.randperm(len(test.data), generator=torch.Generator().manual_seed(seed))
    for name, data in trusted.items():
        return Arranged(name, data.logits, order)
    half = len(order) // 2
    return Arranged("", test.data.logits[order[:half]], order[half:])


def threshold_rows(test: ConformalTest) -> Iterator[ThresholdRow]:
    """The threshold at each common level, and the one that keeps the level with a chance of `CONFIDENCE`."""
    samples, score = int(test.samples), test.scoring.score
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
    return rank / (samples + 1), *(rate_quantile(rank, samples, chance) for chance in ENDS)


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


def _paper_rows(sets: Sequence[ProbedSet], arranged: Arranged) -> Iterator[ScreenRow]:
    """What the paper's test rejects, of the same samples."""
    for alpha in TESTED_LEVELS:
        for place, data in enumerate(sets):
            rejected = data.scores["log_p_value"] <= math.log(alpha)
            yield _row(("paper", "", alpha), arranged, data, place, rejected if place else rejected[arranged.known])


def _conformal_rows(sets: Sequence[ProbedSet], arranged: Arranged, test: ConformalTest) -> Iterator[ScreenRow]:
    p_values = [test(data.data.logits) for data in sets]
    p_values[0] = p_values[0][arranged.known]
    for alpha in TESTED_LEVELS:
        rank = threshold_rank(len(arranged.held_out), alpha)
        for place, (data, p) in enumerate(zip(sets, p_values, strict=True)):
            row = _row(("conformal", test.scoring.score, alpha), arranged, data, place, p <= alpha)
            if rank == 0:
                row = row._replace(flagged=math.nan, flagged_low=math.nan, flagged_high=math.nan)
            elif place == 0:
                chance = excess_chance(int((p <= alpha).sum()), len(p), rank, len(arranged.held_out))
                row = row._replace(chance=chance)
            yield row


def _row(test: tuple[str, str, float], arranged: Arranged, data: ProbedSet, place: int, flagged: Tensor) -> ScreenRow:
    found, total = int(flagged.sum()), len(flagged)
    held_out = arranged.name, len(arranged.held_out)
    shares = found / total, *binomial_interval(found, total)
    return ScreenRow(*test, *held_out, data.name, "ood" if place else "id", total, *shares, math.nan)


def _stream_rows(sets: Sequence[ProbedSet], arranged: Arranged, test: ConformalTest, seed: int) -> list[StreamRow]:
    """The evidence after each sample of a stream that turns from the test set to each OOD set."""
    known = sets[0].data.logits[arranged.known[:STREAM_KNOWN]]
    rows = []
    for data in sets[1:]:
        order = torch.randperm(len(data.data), generator=torch.Generator().manual_seed(seed))[:STREAM_OTHER]
        monitor = DriftMonitor(test, STREAM_ALPHA, seed=seed)
        evidence = monitor.update(torch.cat([known, data.data.logits[order].to(known.dtype)])).tolist()
        rows += [
            StreamRow(data.name, test.scoring.score, STREAM_ALPHA, i, "id" if i <= len(known) else "ood", value)
            for i, value in enumerate(evidence, start=1)
        ]
    return rows
