"""The tables of out-of-distribution detection, from the counts of the scores of each set."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...functional.registry import scores
from ...report.claims import NORMAL_QUANTILE
from ...report.tables import DetectionRow, HistogramRow, RocRow
from ..bootstrap import random_numbers, with_intervals
from ..counted import Counted
from ..curves import histogram_rows, thin_curve
from ..exact import binomial_interval
from ..separation import STATISTICS, cell_intervals
from .places import OPPOSITE, all_counts, counted_scores, place_score, ranked_places
from .separation import Separated, count_cells, separate_counts
from .state import SAMPLED, SetState


class Errors(NamedTuple):
    """The largest errors of the statistics of all scores and sets, because scores are counted in places.

    `score` is the one with the largest error of the AUROC.
    """

    auroc: float = 0.0
    fpr95: float = 0.0
    aupr: float = 0.0
    score: str = ""


class Detection(NamedTuple):
    """Rows of the tables `ood`, `roc` and `histograms`, and the largest errors."""

    ood: list[DetectionRow]
    roc: list[RocRow]
    histograms: list[HistogramRow]
    errors: Errors


def detection_rows(
    states: Sequence[SetState], names: Sequence[str], *, replicates: int, seed: int, progress: Callable[[str], object]
) -> Detection:
    """The rows for the test set, which is the first, and the OOD sets, ordered by set and then by score."""
    known, others = states[0], states[1:]
    found = Detection([], [], [], Errors())
    for name in names:
        found.histograms.extend(_histogram(name, states))
    errors = []
    for other in others:
        baseline: Separated | None = None
        for name in names:
            progress(f"{other.plan.name}: score {name}")
            pair = all_counts(known.places, name), all_counts(other.places, name)
            result = separate_counts(*pair)
            baseline = baseline or result
            errors.append(Errors(result.auroc_error, result.fpr95_error, result.aupr_error, name))
            numbers = random_numbers(seed, "separation", other.plan.name, name)
            values = {key: getattr(result, key) for key in STATISTICS}
            counted = ranked_places(pair[0]), ranked_places(pair[1])
            intervals = cell_intervals(values, count_cells(*pair), counted, replicates, numbers)
            values["versus_msp"] = result.auroc - baseline.auroc
            intervals["versus_msp"] = _versus(known, other, name, names[0], result, baseline)
            row = with_intervals(values, intervals)
            upside_down = scores[name].upside_down
            found.ood.append(DetectionRow(other.plan.name, name, kind="score", upside_down=upside_down, **row))
            found.roc.extend(_curve(other.plan.name, name, pair))
    if not errors:
        return found
    worst = max(errors)
    fpr95, aupr = max(x.fpr95 for x in errors), max(x.aupr for x in errors)
    return found._replace(errors=worst._replace(fpr95=fpr95, aupr=aupr))


def _versus(
    known: SetState, other: SetState, name: str, first: str, result: Separated, baseline: Separated
) -> tuple[float, float]:
    """DeLong's 95 % interval of the difference from the baseline; the variances are those of the random samples."""
    value, sizes = result.auroc - baseline.auroc, (known.samples, other.samples)
    if name == first:
        return 0.0, 0.0
    if result.auroc == baseline.auroc in (0.0, 1.0):
        reach = binomial_interval(0, min(sizes))[1]
        return -reach, reach
    if min(sizes) < 2:
        return math.nan, math.nan
    sides = [_placements(a, b, name) - _placements(a, b, first) for a, b in ((known, other), (other, known))]
    margin = NORMAL_QUANTILE * math.sqrt(sum(float(d.var()) / n for d, n in zip(sides, sizes, strict=True)))
    return max(value - margin, -1.0), min(value + margin, 1.0)


def _placements(state: SetState, other: SetState, name: str) -> Tensor:
    """For each sampled row of a set, the share of the other set below it; a tie counts half."""
    behind = OPPOSITE.get(name, name)
    numbers = [x for x in state.scores if x not in OPPOSITE]
    place = place_score(behind, state.sample.columns[len(SAMPLED) + numbers.index(behind)])
    counts = other.places[behind].double()
    share = (counts.cumsum(0) - counts / 2)[place] / counts.sum()
    return 1 - share if name in OPPOSITE else share


def _curve(ood: str, score: str, pair: tuple[Tensor, Tensor]) -> list[RocRow]:
    used = (pair[0] + pair[1] > 0).flip(0)
    tpr, fpr = (torch.cat([x.new_zeros(1), x.flip(0)[used].cumsum(0)]).double() / x.sum() for x in pair)
    points = zip(*(axis.tolist() for axis in thin_curve(fpr, tpr)), strict=True)
    return [RocRow(ood, score, x, y) for x, y in points]


def _histogram(score: str, states: Sequence[SetState]) -> list[HistogramRow]:
    """The histogram of a score. For the score `gap`, which is minus the gap, it is that of the gap itself."""
    sets = {state.plan.name: counted_scores(score, all_counts(state.places, score)) for state in states}
    if score == "gap":
        sets = {name: Counted(-x.values.flip(0), x.counts.flip(0)) for name, x in sets.items()}
    return histogram_rows(score, sets)
