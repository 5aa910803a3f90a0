"""How well a score separates two sets of samples: exact estimates, and intervals by a bootstrap on cells."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..functional.separation import binned_auroc, fpr_at_tpr, placement
from ..report.claims import NORMAL_QUANTILE
from .bootstrap import bootstrap_interval, replicate
from .exact import aupr_interval, auroc_interval, fpr_interval
from .probing import ordered

STATISTICS = ("auroc", "fpr95", "aupr")
CELLS = 512
TPR = 0.95


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
    id_placement = _unsorted(placement(negative, positive), id_ranked.order)
    ood_placement = _unsorted(1 - placement(positive, negative), ood_ranked.order)
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
    differences = (one.id_placement - other.id_placement, one.ood_placement - other.ood_placement)
    value = float(differences[0].mean())
    if min(len(d) for d in differences) < 2:
        return value, math.nan, math.nan
    margin = NORMAL_QUANTILE * math.sqrt(sum(float(d.var()) / len(d) for d in differences))
    return value, max(value - margin, -1.0), min(value + margin, 1.0)


def separation_intervals(
    exact: Separation, id_ranked: Ranked, ood_ranked: Ranked, replicates: int, numbers: Any, cells: int = CELLS
) -> dict[str, tuple[float, float]]:
    """The 95 % intervals of the statistics. In each replicate, both sets are drawn again in their own sizes.

    If few samples are on the wrong side, the functions of `exact.py` make the intervals wider.
    """
    positive, negative = id_ranked.values, ood_ranked.values
    values = {name: getattr(exact, name) for name in STATISTICS}
    return cell_intervals(values, score_cells(positive, negative, cells), (positive, negative), replicates, numbers)


def cell_intervals(
    values: Mapping[str, float],
    cells: tuple[Tensor, Tensor, Tensor],
    scores: tuple[Tensor, Tensor],
    replicates: int,
    numbers: Any,
) -> dict[str, tuple[float, float]]:
    """The 95 % intervals of the statistics, by the bootstrap on cells.

    Args:
        values: the statistics by name.
        cells: the counts of both sets in each cell, and which cells hold a single score; see `score_cells`.
        scores: the scores of both sets, in rising order.
        replicates: the number of replicates.
        numbers: a generator from `random_numbers`.
    """
    (positive, negative), (*counts, atoms) = scores, cells
    observed, drawn = replicate(
        lambda positive, negative: _cell_statistics(positive, negative, atoms), counts, replicates, numbers
    )
    found = {name: bootstrap_interval(values[name], observed[i], drawn[:, i]) for i, name in enumerate(STATISTICS)}
    auroc = auroc_interval(found["auroc"], values["auroc"], min(len(positive), len(negative)))
    if auroc != found["auroc"]:
        found["aupr"] = aupr_interval(found["aupr"], auroc, len(negative) / len(positive))
    fpr95 = fpr_interval(found["fpr95"], values["fpr95"], positive, negative, TPR)
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
    first, end = _between(pooled, edges)
    filled = end > first
    atoms = pooled[first[filled]] == pooled[end[filled] - 1]
    counts = [(end - first)[filled].flip(0) for first, end in (_between(x, edges) for x in (positive, negative))]
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


def _between(rising: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Where each cell begins and ends. The last cell has all scores above its edge."""
    first = torch.searchsorted(rising, edges)
    return first, torch.cat([first[1:], first.new_tensor([len(rising)])])


def _unsorted(values: Tensor, order: Tensor) -> Tensor:
    return torch.empty_like(values).scatter_(0, order, values)
