"""How well a score separates two sets if only samples of the same stratum are compared.

A stratum has samples of about equal confidence, or those of one fold.
"""

import math
from typing import Any

import torch
from torch import Tensor

from ..functional.separation import placement
from .bootstrap import bootstrap_interval, replicate
from .exact import auroc_interval
from .probing import ordered
from .separation import CELLS, Separation, score_cells

FEWEST_CELLS = 8
Pair = tuple[Tensor, Tensor]


def confidence_strata(confidence: Pair, strata: int) -> Pair:
    """The number of the stratum of each sample, from 0. Strata are quantiles of both sets together.

    Samples of equal confidence are in the same stratum.
    """
    pooled = ordered(torch.cat(confidence))
    edges = pooled[torch.arange(1, strata) * len(pooled) // strata].unique()
    places = [torch.searchsorted(edges, x, right=True) for x in confidence]
    return places[0], places[1]


def separate_within(scores: Pair, strata: Pair) -> Separation:
    """The AUROC over the pairs of the same stratum, with placements for `paired_difference`. Other statistics are NaN.

    Let theta = wins / pairs over all samples, and let sample i have wins_i of pairs_i pairs. In a set of N samples, its
    placement is theta + (wins_i - theta pairs_i) N / pairs. The mean of the placements is theta, and the variance of
    their differences is that of the ratio, to first order. With a single stratum this is DeLong's method.

    >>> scores = torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0])
    >>> separate_within(scores, (torch.tensor([0, 1]), torch.tensor([0, 1]))).auroc
    1.0
    """
    ranks = torch.cat(scores).unique(return_inverse=True)[1]
    span = len(ranks)
    keys = (torch.cat(strata) * span + ranks).split([len(x) for x in scores])
    won, size = _wins(keys[0], keys[1], strata[0], span)
    lost, size_of_id = _wins(keys[1], keys[0], strata[1], span)
    pairs = size.sum()
    auroc = won.sum() / pairs
    id_placement = auroc + (won - auroc * size) * len(won) / pairs
    ood_placement = auroc + (size_of_id - lost - auroc * size_of_id) * len(lost) / pairs
    return Separation(float(auroc), math.nan, math.nan, id_placement, ood_placement)


def pairs_within(strata: Pair) -> int:
    """The number of pairs, of one sample from each set, that are in the same stratum."""
    known, strange = _sizes(strata)
    return int((known * strange).sum())


def interval_within(auroc: float, scores: Pair, strata: Pair, replicates: int, numbers: Any) -> tuple[float, float]:
    """The 95 % interval of the AUROC, by the bootstrap on cells of neighbours in each stratum.

    The edges of the strata are the same in all replicates. If few pairs are on the wrong side, the interval is wider;
    see `exact.py`.
    """
    present = torch.cat(strata).unique()
    cells = max(FEWEST_CELLS, CELLS // len(present))
    parts = []
    for stratum in present:
        pair = [ordered(x[place == stratum]) for x, place in zip(scores, strata, strict=True)]
        parts.append(score_cells(pair[0], pair[1], cells)[:2])
    sizes = torch.tensor([len(part[0]) for part in parts])
    end = sizes.cumsum(0).repeat_interleave(sizes) - 1
    first = end + 1 - sizes.repeat_interleave(sizes)

    def statistic(positive: Tensor, negative: Tensor) -> Tensor:
        """The AUROC of each replicate.

        It is the formula of `functional.separation.binned_auroc`, but the sums begin again in each stratum, and strata
        have different numbers of cells. The cells are in falling order of the score.
        """
        alarms = negative.cumsum(1)
        wins = positive * (alarms[:, end] - alarms + negative / 2)
        pairs = positive * (alarms[:, end] - alarms[:, first] + negative[:, first])
        return wins.sum(1) / pairs.sum(1)

    counts = [torch.cat([part[side] for part in parts]) for side in (0, 1)]
    found = bootstrap_interval(auroc, *replicate(statistic, counts, replicates, numbers))
    known, strange = _sizes(strata)
    return auroc_interval(found, auroc, int(torch.minimum(known, strange).sum()))


def _sizes(strata: Pair) -> Pair:
    """The number of samples of each set in each stratum."""
    count = int(torch.cat(strata).max()) + 1
    return strata[0].bincount(minlength=count), strata[1].bincount(minlength=count)


def _wins(own: Tensor, others: Tensor, strata: Tensor, span: int) -> Pair:
    """For each of `own`, how many others of its stratum are below it (a tie counts half), and how many there are.

    Args:
        own: keys of the samples: stratum * span + rank of the score.
        others: keys of the samples of the other set.
        strata: the stratum of each of `own`.
        span: larger than every rank.
    """
    rising = others.sort().values
    first, end = (torch.searchsorted(rising, edge) for edge in (strata * span, (strata + 1) * span))
    # `placement` gives a share. Twice the count is a whole number, so that rounding makes it exact.
    below = (placement(rising, own) * (2 * len(rising))).round() / 2
    return below - first, (end - first).double()
