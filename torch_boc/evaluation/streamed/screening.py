"""The tables of the tests that hold, from the counts of the scores of each set."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.coins import Coins
from ...data.sets import LogitSet
from ...functional.conformal import place_p_values
from ...functional.evidence import Evidence
from ...functional.thresholds import threshold_rank
from ...nn.conformal import ConformalTest
from ...nn.drift import DriftMonitor
from ...report.choices import TESTED_LEVELS, TESTED_SCORES
from ...report.tables import ScreenRow, StreamRow, ThresholdRow
from ..exact import binomial_interval
from ..screening import STREAM_ALPHA, STREAM_KNOWN, STREAM_OTHER, excess_chance, threshold_rows
from .places import OPPOSITE
from .state import SAMPLED, SetState


class Screening(NamedTuple):
    """Rows of the tables `screening`, `thresholds` and `stream`."""

    screening: list[ScreenRow]
    thresholds: list[ThresholdRow]
    stream: list[StreamRow]


def screening_rows(
    states: Sequence[SetState],
    names: Sequence[str],
    trusted: Mapping[str, LogitSet],
    *,
    seed: int,
    progress: Callable[[str], object],
) -> Screening:
    """The rows, for a test that is calibrated on the first trusted split, or on a random half of the test set."""
    split = next(iter(trusted), "")
    held_out = len(trusted[split]) if split else int(states[0].sizes[0])
    measured = states[0].samples if split else int(states[0].sizes[1])
    if not held_out or not measured:
        return Screening([], [], [])
    found = Screening(list(_paper_rows(states, split, held_out)), [], [])
    for score in [name for name in TESTED_SCORES if name in names]:
        progress(f"conformal test, {score}")
        test = _calibrated(states[0], score, trusted.get(split))
        found.screening.extend(_conformal_rows(states, split, test))
        found.thresholds.extend(threshold_rows(test))
        if not found.stream:
            found.stream.extend(_stream_rows(states, bool(split), test, seed))
    return found


def _calibrated(known: SetState, score: str, split: LogitSet | None) -> ConformalTest:
    test = ConformalTest(score, num_classes=known.num_classes, validate_args=False)
    return test.calibrate(split.logits) if split is not None else test.add_counts(known.held_out[score])


def _paper_rows(states: Sequence[SetState], split: str, held_out: int) -> Iterator[ScreenRow]:
    """What the paper's test rejects, of the same samples."""
    for level, alpha in enumerate(TESTED_LEVELS):
        for place, state in enumerate(states):
            whole = bool(place or split)
            rejected, sizes = state.rejected[:, level], state.sizes
            numbers = (rejected.sum(), sizes.sum()) if whole else (rejected[1], sizes[1])
            yield _row(("paper", "", alpha, split, held_out), state, place, *map(int, numbers))


def _conformal_rows(states: Sequence[SetState], split: str, test: ConformalTest) -> Iterator[ScreenRow]:
    score, held_out = test.scoring.score, int(test.samples)
    p_values = place_p_values(test.counts)[0]
    for alpha in TESTED_LEVELS:
        rank = threshold_rank(held_out, alpha)
        for place, state in enumerate(states):
            counts = state.places[score] - (0 if place or split else state.held_out[score])
            flagged, total = int(counts[p_values <= alpha].sum()), int(counts.sum())
            row = _row(("conformal", score, alpha, split, held_out), state, place, flagged, total)
            if rank == 0:
                row = row._replace(flagged=math.nan, flagged_low=math.nan, flagged_high=math.nan)
            elif place == 0:
                row = row._replace(chance=excess_chance(flagged, total, rank, held_out))
            yield row


def _row(test: tuple[str, str, float, str, int], state: SetState, place: int, found: int, total: int) -> ScreenRow:
    shares = found / total, *binomial_interval(found, total)
    return ScreenRow(*test, state.plan.name, "ood" if place else "id", total, *shares, math.nan)


def _stream_rows(states: Sequence[SetState], whole: bool, test: ConformalTest, seed: int) -> list[StreamRow]:
    """The evidence after each sample of a stream of sampled rows that turns from the test set to each OOD set."""
    known = _sampled(states[0], test, None if whole else 1)[:STREAM_KNOWN]
    rows = []
    for state in states[1:]:
        numbers = torch.cat([known, _sampled(state, test)[:STREAM_OTHER]])
        monitor = DriftMonitor(test, STREAM_ALPHA, seed=seed)
        evidence = monitor.update(_evidence(numbers, state.num_classes)).tolist()
        rows += [
            StreamRow(state.plan.name, test.scoring.score, STREAM_ALPHA, i, "id" if i <= len(known) else "ood", value)
            for i, value in enumerate(evidence, start=1)
        ]
    return rows


def _sampled(state: SetState, test: ConformalTest, half: int | None = None) -> Tensor:
    """The log odds of sampled rows, of one half or of both."""
    numbers = [x for x in state.scores if x not in OPPOSITE]
    column = state.sample.columns[len(SAMPLED) + numbers.index(test.scoring.name)]
    return column if half is None else column[state.sample.columns[SAMPLED.index("half")] == half]


def _evidence(log_odds: Tensor, num_classes: int) -> Evidence:
    nothing = torch.zeros_like(log_odds)
    coins = Coins(nothing.long(), (-log_odds).exp(), nothing, nothing, nothing)
    return Evidence(coins, num_classes, log_odds=log_odds)
