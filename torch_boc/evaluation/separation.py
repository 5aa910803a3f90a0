"""Out-of-distribution detection: how well every score separates the test set from every OOD set.

The estimates are exact. Their intervals come from a bootstrap on cells. The ROC curve of a score has few points, and
its histogram has bins that are the same for every set.
"""

import math
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data.atomic import printable
from ..data.sets import LogitSet
from ..functional.registry import scores
from ..functional.separation import binned_auroc, fpr_at_tpr, placement, share_above
from ..report.tables import AlarmRow, DetectionRow, HistogramRow, RocRow
from ..report.words import NORMAL_QUANTILE
from .detectors import detector_scores, mahalanobis_scores
from .intervals import (
    Interval,
    aupr_interval,
    auroc_interval,
    binomial_interval,
    bootstrap_interval,
    fpr_interval,
    random_numbers,
    replicate,
    with_intervals,
)
from .samples import AnySet, ProbedSet, ordered

MAHALANOBIS = "mahalanobis"
# After a softmax these scores are the same for every sample, but for rounding.
LOST = ("energy",)
STATISTICS = ("auroc", "fpr95", "aupr")
CELLS = 512
TPR = 0.95
# The curve is computed at this many thresholds from each set. Then points are left out, so that FPR + TPR grows in
# steps of at most `STEP`. A monotone curve is nowhere further than L / sqrt(8) from a chord over which FPR + TPR grows
# by L: 0.0018 for the steps, and 0.0002 for the thresholds.
THRESHOLDS, STEP = 4000, 0.005
HISTOGRAM_BINS = 50
TAILS = (0.005, 0.995)
# The rates of false alarms that thresholds are taken for, in thousandths: fine where a threshold is of use.
RATES = (*range(0, 50), *range(50, 200, 5), *range(200, 1000, 20))


class ScoredSets(NamedTuple):
    """One score for all sets that have it, higher = more in-distribution. The test set comes first.

    The scores of the registry are given by the numbers that rank the samples, so that no samples are equal by rounding.
    """

    name: str
    kind: str
    sets: dict[str, Tensor]

    def value(self, numbers: Tensor) -> Tensor:
        """The score itself, as it is shown."""
        return scores[self.name].value(numbers) if self.kind == "score" else numbers


class Ranked(NamedTuple):
    """Scores in rising order, and the index of each in its set."""

    values: Tensor
    order: Tensor


class Separation(NamedTuple):
    """The statistics of a score, and the place of each sample among those of the other set. A tie counts half.

    Attributes:
        auroc: the chance that an in-distribution sample has a higher score than an out-of-distribution sample.
        fpr95: the share of out-of-distribution samples above the threshold that keeps 95 % of the in-distribution.
        aupr: the average precision, with the in-distribution samples as the positive class.
        id_placement: for each in-distribution sample, the share of out-of-distribution samples below it.
        ood_placement: for each out-of-distribution sample, the share of in-distribution samples above it.
    """

    auroc: float
    fpr95: float
    aupr: float
    id_placement: Tensor
    ood_placement: Tensor


def collect_scores(
    sets: Sequence[ProbedSet], train: AnySet | None = None, detectors: Mapping[str, Any] | None = None
) -> list[ScoredSets]:
    """The scores to compare: those of the registry, Mahalanobis if there is training data, detectors, and columns."""
    if detectors is not None and not isinstance(detectors, Mapping):
        raise TypeError(f"expected detectors as a mapping from names to callables, got {type(detectors).__name__}")
    detectors = {printable(k) if isinstance(k, str) else k: x for k, x in (detectors or {}).items()}
    _check_names(sets, train, detectors)
    lost = LOST if sets[0].data.from_probabilities else ()
    found = [
        ScoredSets(name, "score", {x.name: x.scores[name] for x in sets})
        for name in scores
        if name not in lost and all(name in x.scores for x in sets)
    ]
    logits = {x.name: x.data.logits for x in sets if isinstance(x.data, LogitSet)}
    if isinstance(train, LogitSet):
        distances = mahalanobis_scores(train, *logits.values())
        found.append(ScoredSets(MAHALANOBIS, "detector", {x.name: y for x, y in zip(sets, distances, strict=True)}))
    for name, detector in detectors.items():
        values = {set_name: detector_scores(detector, rows, name) for set_name, rows in logits.items()}
        found.append(ScoredSets(name, "detector", values))
    test, *others = sets
    for other in others:
        here, there = set(test.data.columns), set(other.data.columns)
        for name in [*test.data.columns, *other.data.columns]:
            if name in here ^ there:
                owner, lacking = (test, other) if name in here else (other, test)
                message = f"column {name!r} of {owner.name!r} is left out: {lacking.name!r} has no column of that name"
                warnings.warn(message, UserWarning, stacklevel=3)
    return found + [
        ScoredSets(name, "column", {x.name: x.data.columns[name].double() for x in sets if name in x.data.columns})
        for name in test.data.columns
    ]


def _check_names(sets: Sequence[ProbedSet], train: AnySet | None, detectors: Mapping[str, Any]) -> None:
    """Raise unless detectors and columns have names that no other score has."""
    taken = dict.fromkeys(scores, "score") | ({} if train is None else {MAHALANOBIS: "detector"})
    for name in detectors:
        if not isinstance(name, str) or not name:
            raise ValueError(f"expected names of detectors as strings, got {name!r}")
        if name in taken:
            raise ValueError(
                f"expected a new name for a detector, got {name!r}, which is the name of a {taken[name]}; rename it"
            )
    taken |= dict.fromkeys(detectors, "detector")
    for data in sets:
        for name in data.data.columns:
            if name in taken:
                raise ValueError(
                    f"{data.name}: expected columns under new names, got {name!r}, which is the name of a "
                    f"{taken[name]}; rename the column or leave it out"
                )


def detection_tables(
    found: Sequence[ScoredSets], id_name: str, *, replicates: int, seed: int, progress: Callable[[str], object]
) -> tuple[list[DetectionRow], list[RocRow], list[HistogramRow]]:
    """Rows of the tables `ood`, `roc` and `histograms`, ordered by set and then by score."""
    table: dict[str, list[DetectionRow]] = {}
    curves: dict[str, list[RocRow]] = {}
    histograms: list[HistogramRow] = []
    baseline: dict[str, Separation] = {}
    for score in found:
        progress(f"score {score.name}")
        ranked = {name: rank_scores(values) for name, values in score.sets.items()}
        histograms += histogram_rows(score.name, {name: score.value(x.values) for name, x in ranked.items()})
        upside_down = score.kind == "score" and scores[score.name].upside_down
        for name in [name for name in ranked if name != id_name]:
            pair = ranked[id_name], ranked[name]
            result = separate(*pair)
            baseline.setdefault(name, result)  # the first score is the baseline
            difference, low, high = paired_difference(result, baseline[name])
            numbers = random_numbers(seed, "separation", name, score.name)
            columns = with_intervals(
                {key: getattr(result, key) for key in STATISTICS} | {"versus_msp": difference},
                {**separation_intervals(result, *pair, replicates, numbers), "versus_msp": (low, high)},
            )
            row = DetectionRow(ood=name, score=score.name, kind=score.kind, upside_down=upside_down, **columns)
            table.setdefault(name, []).append(row)
            points = zip(*(axis.tolist() for axis in roc_curve(pair[0].values, pair[1].values)), strict=True)
            curves.setdefault(name, []).extend(RocRow(name, score.name, fpr, tpr) for fpr, tpr in points)
    return list(chain(*table.values())), list(chain(*curves.values())), histograms


def rank_scores(scores: Tensor) -> Ranked:
    """Sort the scores of a set, once for everything that is computed from them."""
    order = torch.from_numpy(scores.double().numpy().argsort())
    return Ranked(scores.double()[order], order)


def separate(id_ranked: Ranked, ood_ranked: Ranked) -> Separation:
    """The exact statistics of two sets.

    >>> result = separate(rank_scores(torch.tensor([3.0, 2.0])), rank_scores(torch.tensor([1.0, 2.0])))
    >>> result.auroc, result.fpr95, round(result.aupr, 4)
    (0.875, 0.5, 0.8333)
    """
    positive, negative = id_ranked.values, ood_ranked.values
    above, below = placement(negative, positive), 1 - placement(positive, negative)
    id_placement = torch.empty_like(above).scatter_(0, id_ranked.order, above)
    ood_placement = torch.empty_like(below).scatter_(0, ood_ranked.order, below)
    # How many of each set are at or above the score of each positive sample.
    true, false = (len(x) - torch.searchsorted(x, positive) for x in (positive, negative))
    precision = true.double() / (true + false)
    fpr95 = fpr_at_tpr(positive, negative, TPR)
    return Separation(float(id_placement.mean()), float(fpr95), float(precision.mean()), id_placement, ood_placement)


def paired_difference(one: Separation, other: Separation) -> tuple[float, float, float]:
    """AUROC of `one` minus that of `other` on the same samples, with DeLong's 95 % interval.

    The AUROC is the mean of the placements over each of the two sets. With d the differences of placements, the
    variance of the difference is Var(d_id) / N + Var(d_ood) / M.
    """
    if one is not other and one.auroc == other.auroc in (0.0, 1.0):
        # No sample is on the wrong side for either. This does not show that both are equally good.
        reach = binomial_interval(0, min(len(one.id_placement), len(one.ood_placement)))[1]
        return 0.0, -reach, reach
    differences = (one.id_placement - other.id_placement, one.ood_placement - other.ood_placement)
    value = float(differences[0].mean())
    if min(len(d) for d in differences) < 2:
        return value, math.nan, math.nan
    margin = NORMAL_QUANTILE * math.sqrt(sum(float(d.var()) / len(d) for d in differences))
    return value, max(value - margin, -1.0), min(value + margin, 1.0)


def separation_intervals(
    exact: Separation, id_ranked: Ranked, ood_ranked: Ranked, replicates: int, numbers: Any, cells: int = CELLS
) -> dict[str, Interval]:
    """The 95 % intervals of the statistics. In each replicate, both sets are drawn again in their own sizes.

    If few samples are on the wrong side, the functions of `intervals.py` make the intervals wider.
    """
    positive, negative = id_ranked.values, ood_ranked.values
    *counts, atoms = score_cells(positive, negative, cells)
    observed, drawn = replicate(lambda ours, theirs: _cell_statistics(ours, theirs, atoms), counts, replicates, numbers)
    values = {name: getattr(exact, name) for name in STATISTICS}
    found = {name: bootstrap_interval(values[name], observed[i], drawn[:, i]) for i, name in enumerate(STATISTICS)}
    auroc = auroc_interval(found["auroc"], exact.auroc, min(len(positive), len(negative)))
    if auroc != found["auroc"]:
        found["aupr"] = aupr_interval(found["aupr"], auroc, len(negative) / len(positive))
    fpr95 = fpr_interval(found["fpr95"], exact.fpr95, positive, negative, TPR)
    return found | {"auroc": auroc, "fpr95": fpr95}


def score_cells(positive: Tensor, negative: Tensor, cells: int = CELLS) -> tuple[Tensor, Tensor, Tensor]:
    """Cells of neighbours in the order of both sets together, from the highest score down.

    The cells have about as many samples each. If there are at most `cells` different scores, each has a cell of its
    own. A score that is as frequent as a cell has a cell of its own as well.

    Args:
        positive: the scores of the first set, in rising order.
        negative: the scores of the second set, in rising order.
        cells: the number of cells.

    Returns:
        The number of samples of each set in each cell, and which cells hold a single score.
    """
    pooled = ordered(torch.cat([positive, negative]))
    edges = pooled.unique_consecutive()
    if len(edges) > cells:
        edges, times = pooled[torch.arange(cells) * len(pooled) // cells].unique_consecutive(return_counts=True)
        after = torch.nextafter(edges[times > 1], edges.new_tensor(math.inf))
        edges = torch.cat([edges, after]).unique()

    def between(rising: Tensor) -> tuple[Tensor, Tensor]:
        """Where each cell begins and ends. The last cell has all scores above its edge."""
        first = torch.searchsorted(rising, edges)
        return first, torch.cat([first[1:], first.new_tensor([len(rising)])])

    first, end = between(pooled)
    filled = end > first
    atoms = pooled[first[filled]] == pooled[end[filled] - 1]
    counts = [(end - first)[filled].flip(0) for first, end in map(between, (positive, negative))]
    return counts[0], counts[1], atoms.flip(0)


def _cell_statistics(positive: Tensor, negative: Tensor, atoms: Tensor) -> Tensor:
    """From counts (R, cells), the statistics (R, 3). In a cell of several scores, both sets are assumed to be mixed."""
    n, m = positive[0].sum(), negative[0].sum()
    hits, alarms = positive.cumsum(1), negative.cumsum(1)
    auroc, _ = binned_auroc(positive.flip(1), negative.flip(1))
    rest = torch.where(atoms, 0.0, 0.5)
    true, false = hits - positive * rest, alarms - negative * rest
    # With a positive sample in the cell, true + false is at least 1/2, so that the limit matters in empty cells only.
    aupr = (positive * true / (true + false).clamp_min(0.25)).sum(1) / n
    kept = max(1, math.ceil(TPR * float(n) - 1e-9))
    place = (hits < kept).sum(1, keepdim=True)
    inside = positive.gather(1, place)
    surplus = torch.where(atoms[place], 0.0, (hits.gather(1, place) - kept) / inside)
    fpr = (alarms.gather(1, place) - negative.gather(1, place) * surplus).squeeze(1) / m
    return torch.stack([auroc, fpr, aupr], 1)


def roc_curve(positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """The FPR and the TPR of scores in rising order, from (0, 0) to (1, 1).

    No point of the full curve is further than 0.002 from this one.

    >>> roc_curve(torch.tensor([2.0, 3.0]), torch.tensor([1.0, 2.0]))
    (tensor([0.0000, 0.0000, 0.5000, 1.0000], dtype=torch.float64),
     tensor([0.0000, 0.5000, 1.0000, 1.0000], dtype=torch.float64))
    """
    some = [x if len(x) <= THRESHOLDS else x[torch.arange(THRESHOLDS) * (len(x) - 1) // (THRESHOLDS - 1)]
            for x in (positive, negative)]  # fmt: skip
    thresholds = torch.cat(some).unique().flip(0)
    # Falling thresholds: the share above each, and then the share at or above it, so that a tie of several scores gives
    # the two ends of a straight line.
    fpr, tpr = (
        torch.stack([share_above(x, thresholds, strict=strict) for strict in (True, False)], 1).flatten()
        for x in (negative, positive)
    )
    end = torch.ones(1, dtype=torch.bool)
    fresh = torch.cat([end, (fpr + tpr).diff() > 0])
    fpr, tpr = fpr[fresh], tpr[fresh]
    # A point is a corner, and kept, unless it has the same FPR or the same TPR as both of its neighbours.
    moves = [axis.diff() > 0 for axis in (fpr, tpr)]
    corners = [torch.cat([end, x[1:] | x[:-1], end]) for x in moves]
    fpr, tpr = (axis[corners[0] & corners[1]] for axis in (fpr, tpr))
    length = (fpr + tpr).tolist()
    chosen = [0]
    while chosen[-1] < len(length) - 1:
        furthest = bisect_right(length, length[chosen[-1]] + STEP) - 1
        chosen.append(max(chosen[-1] + 1, furthest))
    return fpr[chosen], tpr[chosen]


def histogram_rows(score: str, sets: Mapping[str, Tensor]) -> list[HistogramRow]:
    """The share of each set in bins that are the same for all sets; scores are in rising order.

    The bins cover the bulk of every set. The first and the last bin include all scores beyond them. For the score
    `gap`, which is minus the gap, they are those of the gap itself.
    """
    if score == "gap":
        sets = {name: -x.flip(0) for name, x in sets.items()}
    finite = [x[x.isfinite()] for x in sets.values() if bool(x.isfinite().any())]
    low = min((float(x[int(TAILS[0] * (len(x) - 1))]) for x in finite), default=0.0)
    high = max((float(x[-1 - int((1 - TAILS[1]) * (len(x) - 1))]) for x in finite), default=low)
    if not high - low > 1e-12 * max(abs(low), abs(high)):  # there is one value only, which is put in the middle
        margin = 0.5 * max(abs(low), 1.0)
        low, high = low - margin, high + margin
    edges = torch.linspace(low, high, HISTOGRAM_BINS + 1, dtype=torch.float64)
    rows = []
    for name, rising in sets.items():
        inner = torch.searchsorted(rising, edges[1:-1])
        counts = torch.cat([inner.new_zeros(1), inner, inner.new_tensor([len(rising)])]).diff()
        bins = zip(edges[:-1].tolist(), edges[1:].tolist(), (counts.double() / len(rising)).tolist(), strict=True)
        rows += [HistogramRow(score, name, *values) for values in bins]
    return rows


def alarm_rows(found: Iterable[ScoredSets]) -> list[AlarmRow]:
    """For each score and for thresholds that flag given shares of the test set: the share of each set below them.

    The paper's score is left out, because it is that of log p* upside down.
    """
    rows = []
    for score in found:
        if score.name in scores and scores[score.name].upside_down:
            continue
        known, *_ = rising = [ordered(score.value(numbers)) for numbers in score.sets.values()]
        thresholds = known[torch.tensor(RATES) * len(known) // 1000].unique()
        for name, values in zip(score.sets, rising, strict=True):
            shares = torch.searchsorted(values, thresholds).double() / len(values)
            pairs = zip(thresholds.tolist(), shares.tolist(), strict=True)
            rows += [AlarmRow(score.name, name, threshold, share) for threshold, share in pairs]
    return rows
