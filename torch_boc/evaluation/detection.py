"""Out-of-distribution detection: how well every score separates the test set from every OOD set.

The estimates are exact. Their intervals come from a bootstrap on cells. The ROC curve of a score has few points.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..data.errors import printable
from ..data.logit_set import LogitSet
from ..functional.registry import scores
from ..functional.separation import binned_auroc, fpr_at_tpr, survival
from .detectors import detector_scores, mahalanobis_scores
from .inputs import AnySet, ProbedSet, sorted_by_numpy
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
from .significance import NORMAL_QUANTILE

MAHALANOBIS = "mahalanobis"
STATISTICS = ("auroc", "fpr95", "aupr")
CELLS = 512
TPR = 0.95
# The curve of a score is computed at this many thresholds from each set.
THRESHOLDS = 200


class ScoredSets(NamedTuple):
    """One score for all sets that have it, higher = more in-distribution. The test set comes first.

    The scores of the registry are given by the numbers that rank the samples, so that no samples are equal by rounding.
    """

    name: str
    kind: str
    sets: dict[str, Tensor]


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
    columns = dict.fromkeys(name for data in sets for name in data.data.columns)
    taken = dict.fromkeys(scores, "score") | ({} if train is None else {MAHALANOBIS: "detector"})
    for kind, names in (("detector", detectors), ("column", columns)):
        for name in names:
            if not isinstance(name, str) or not name:
                raise ValueError(f"expected names of {kind}s as strings, got {name!r}")
            if name in taken:
                got = f"{name!r}, which is the name of a {taken[name]}"
                raise ValueError(f"expected a new name for a {kind}, got {got}; rename it")
        taken |= dict.fromkeys(names, kind)
    collected = []
    for name in sets[0].scores:
        values = {x.name: x.scores[name] for x in sets if name in x.scores}
        if len(values) == len(sets):
            collected.append(ScoredSets(name, "score", values))
    logits = {x.name: x.data.logits for x in sets if isinstance(x.data, LogitSet)}
    if isinstance(train, LogitSet):
        distances = mahalanobis_scores(train, *logits.values())
        collected.append(ScoredSets(MAHALANOBIS, "detector", dict(zip(logits, distances, strict=True))))
    for name, detector in detectors.items():
        values = {set_name: detector_scores(detector, rows, name) for set_name, rows in logits.items()}
        collected.append(ScoredSets(name, "detector", values))
    test, *others = sets
    for other in others:
        for owner, lacking in ((test, other), (other, test)):
            for name in [x for x in owner.data.columns if x not in lacking.data.columns]:
                left = f"column {name!r} of {owner.name!r} is left out"
                warnings.warn(f"{left}: {lacking.name!r} has no column of that name", stacklevel=3)
    for name in test.data.columns:
        values = {x.name: x.data.columns[name].double() for x in sets if name in x.data.columns}
        collected.append(ScoredSets(name, "column", values))
    return collected


def detection_tables(
    scored: Sequence[ScoredSets], *, replicates: int, seed: int, progress: Callable[[str], object]
) -> dict[str, list[Any]]:
    """Rows of the tables `ood` and `roc`, ordered by set and then by score. The first score is the baseline."""
    tables: dict[str, list[Any]] = {"ood": [], "roc": []}
    ranked: dict[str, Ranked] = {}
    for name in list(scored[0].sets)[1:]:
        baseline: Separation | None = None
        for score in scored:
            if name not in score.sets:
                continue
            progress(f"{name}, score {score.name}")
            if score.name not in ranked:
                ranked[score.name] = rank_scores(next(iter(score.sets.values())))
            pair = ranked[score.name], rank_scores(score.sets[name])
            result = separate(*pair)
            baseline = baseline or result
            difference, low, high = paired_difference(result, baseline)
            numbers = random_numbers(seed, "separation", name, score.name)
            intervals = separation_intervals(result, *pair, replicates, numbers) | {"versus_msp": (low, high)}
            row: dict[str, Any] = {"ood": name, "score": score.name, "kind": score.kind}
            row["upside_down"] = score.kind == "score" and scores[score.name].upside_down
            tables["ood"].append(row | with_intervals(result._asdict() | {"versus_msp": difference}, intervals))
            curve = zip(*(axis.tolist() for axis in roc_curve(pair[0].values, pair[1].values)), strict=True)
            tables["roc"] += [(name, score.name, *point) for point in curve]
    return tables


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
    n, m = len(positive), len(negative)

    def below(rising: Tensor, scores: Tensor, side: Literal["left", "right"]) -> Tensor:
        """How many of `rising` are below each score, or not above it. NumPy uses that the scores rise, too."""
        return torch.from_numpy(rising.numpy().searchsorted(scores.numpy(), side)).double()

    alarms = below(negative, positive, "left")
    above = (alarms + below(negative, positive, "right")) / (2.0 * m)
    under = 1 - (below(positive, negative, "left") + below(positive, negative, "right")) / (2.0 * n)
    id_placement = torch.empty_like(above).scatter_(0, id_ranked.order, above)
    ood_placement = torch.empty_like(under).scatter_(0, ood_ranked.order, under)
    # How many of each set are at or above the score of each positive sample.
    true, false = n - below(positive, positive, "left"), m - alarms
    precision = true / (true + false)
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
    observed, drawn = replicate(lambda ours, theirs: cell_statistics(ours, theirs, atoms), counts, replicates, numbers)
    values = {name: getattr(exact, name) for name in STATISTICS}
    intervals = {name: bootstrap_interval(values[name], observed[i], drawn[:, i]) for i, name in enumerate(STATISTICS)}
    auroc = auroc_interval(intervals["auroc"], exact.auroc, min(len(positive), len(negative)))
    if auroc != intervals["auroc"]:
        intervals["aupr"] = aupr_interval(intervals["aupr"], auroc, len(negative) / len(positive))
    fpr95 = fpr_interval(intervals["fpr95"], exact.fpr95, positive, negative, TPR)
    return intervals | {"auroc": auroc, "fpr95": fpr95}


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
    pooled = sorted_by_numpy(torch.cat([positive, negative]))
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


def cell_statistics(positive: Tensor, negative: Tensor, atoms: Tensor) -> Tensor:
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

    Thresholds are evenly spaced ranks of each set, so that the full curve is nowhere further than 0.005 from this one.

    >>> roc_curve(torch.tensor([2.0, 3.0]), torch.tensor([1.0, 2.0]))
    (tensor([0.0000, 0.0000, 0.5000, 1.0000], dtype=torch.float64),
     tensor([0.0000, 0.5000, 1.0000, 1.0000], dtype=torch.float64))
    """
    ranks = torch.linspace(0, 1, THRESHOLDS, dtype=torch.float64)
    some = [x[(ranks * (len(x) - 1)).round().long()] for x in (positive, negative)]
    thresholds = torch.cat(some).unique().flip(0)
    end = torch.zeros(1, dtype=torch.float64)
    # Falling thresholds: the share at or above each, which for a tie of several scores is the end of a straight line.
    fpr, tpr = (torch.cat([end, survival(x, thresholds)]) for x in (negative, positive))
    return fpr, tpr
