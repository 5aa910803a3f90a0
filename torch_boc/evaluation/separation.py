"""How well a score separates two sets of samples, with intervals: exact estimates, and a bootstrap on cells."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..functional.separation import binned_auroc, fpr_at_tpr, placement
from .bootstrap import NORMAL_QUANTILE, bootstrap_interval, replicate
from .exact import aupr_interval, auroc_interval, fpr_interval
from .probing import ordered

STATISTICS = ("auroc", "fpr95", "aupr")
CELLS = 512
TPR = 0.95


class Ranked(NamedTuple):
    """Scores in rising order, and the place of each in its set."""

    values: Tensor
    order: Tensor


class Separation(NamedTuple):
    """The statistics of a score, and how each sample is placed in the other set.

    Attributes:
        auroc: the chance that an in-distribution sample scores higher than an out-of-distribution one, ties half.
        fpr95: the share of out-of-distribution samples above the threshold that keeps 95 % of the in-distribution.
        aupr: average precision with the in-distribution samples as the positive class.
        id_placement: for each in-distribution sample, the share of out-of-distribution samples below it, ties half.
        ood_placement: for each out-of-distribution sample, the share of in-distribution samples above it, ties half.
    """

    auroc: float
    fpr95: float
    aupr: float
    id_placement: Tensor
    ood_placement: Tensor


def rank_scores(scores: Tensor) -> Ranked:
    """Sort the scores of a set once for all that is done with them."""
    order = torch.from_numpy(scores.double().numpy().argsort())
    return Ranked(scores.double()[order], order)


def separate(id_ranked: Ranked, ood_ranked: Ranked) -> Separation:
    """The exact statistics, in O(N log N).

    >>> result = separate(rank_scores(torch.tensor([3.0, 2.0])), rank_scores(torch.tensor([1.0, 2.0])))
    >>> result.auroc, result.fpr95, round(result.aupr, 4)
    (0.875, 0.5, 0.8333)
    """
    positive, negative = id_ranked.values, ood_ranked.values
    id_placement = _unsorted(placement(negative, positive), id_ranked.order)
    ood_placement = _unsorted(1 - placement(positive, negative), ood_ranked.order)
    true, false = (len(x) - torch.searchsorted(x, positive) for x in (positive, negative))  # at the threshold of each
    precision = true.double() / (true + false)
    fpr95 = fpr_at_tpr(positive, negative, TPR)
    return Separation(float(id_placement.mean()), float(fpr95), float(precision.mean()), id_placement, ood_placement)


def paired_difference(one: Separation, other: Separation) -> tuple[float, float, float]:
    """AUROC of `one` minus that of `other` on the same samples, with DeLong's 95 % interval.

    The AUROC is the mean of the placements over either set, so the variance of a difference is that of the differences
    of placements, over in-distribution and over out-of-distribution samples: Var(d_id)/N + Var(d_ood)/M.
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
    """The 95 % intervals of the statistics; both sets are drawn anew, each in its own size.

    Where few samples are on the wrong side, `exact` widens them.
    """
    *counts, atoms = score_cells(id_ranked.values, ood_ranked.values, cells)
    observed, drawn = replicate(
        lambda positive, negative: _cell_statistics(positive, negative, atoms), counts, replicates, numbers
    )
    found = {
        name: bootstrap_interval(getattr(exact, name), observed[i], drawn[:, i]) for i, name in enumerate(STATISTICS)
    }
    positive, negative = id_ranked.values, ood_ranked.values
    auroc = auroc_interval(found["auroc"], exact.auroc, min(len(positive), len(negative)))
    if auroc != found["auroc"]:
        found["aupr"] = aupr_interval(found["aupr"], auroc, len(negative) / len(positive))
    fpr95 = fpr_interval(found["fpr95"], exact.fpr95, positive, negative, TPR)
    return found | {"auroc": auroc, "fpr95": fpr95}


def score_cells(positive: Tensor, negative: Tensor, cells: int = CELLS) -> tuple[Tensor, Tensor, Tensor]:
    """Cells of neighbours in the order of both sets together, about equally many in each, from the highest score down.

    Args:
        positive, negative: sorted scores of the two sets.
        cells: how many; if there are no more distinct scores, each has its own. A score that is as frequent as a cell
            has its own as well.

    Returns:
        How many of each set are in each cell, and which cells hold a single score.
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
    """(R, 3) statistics of counts (R, cells). In a cell of several scores the two sets are taken as mixed evenly."""
    n, m = positive[0].sum(), negative[0].sum()
    hits, alarms = positive.cumsum(1), negative.cumsum(1)
    auroc, _ = binned_auroc(positive.flip(1), negative.flip(1))
    rest = torch.where(atoms, 0.0, 0.5)
    true, false = hits - positive * rest, alarms - negative * rest
    aupr = (positive * true / (true + false).clamp_min(0.25)).sum(1) / n  # at least 1/2 where there is a positive
    kept = max(1, math.ceil(TPR * float(n) - 1e-9))
    place = (hits < kept).sum(1, keepdim=True)
    inside = positive.gather(1, place)
    surplus = torch.where(atoms[place], 0.0, (hits.gather(1, place) - kept) / inside)
    fpr = (alarms.gather(1, place) - negative.gather(1, place) * surplus).squeeze(1) / m
    return torch.stack([auroc, fpr, aupr], 1)


def _between(rising: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Where each cell begins and ends; the last one takes all the rest."""
    first = torch.searchsorted(rising, edges)
    return first, torch.cat([first[1:], first.new_tensor([len(rising)])])


def _unsorted(values: Tensor, order: Tensor) -> Tensor:
    return torch.empty_like(values).scatter_(0, order, values)
