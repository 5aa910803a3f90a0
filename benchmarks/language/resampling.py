"""Numbers of tokens with intervals, by resampling documents: the tokens of one document are not independent."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

Columns = Mapping[str, Tensor]
# A number of tokens with weights, all in float64.
Statistic = Callable[[Tensor], Tensor]
REPLICATES, SEED = 500, 0


class Estimate(NamedTuple):
    """A number with its interval of 95 %."""

    value: float
    low: float
    high: float


def estimate(statistic: Statistic, document: Tensor, replicates: int = REPLICATES) -> Estimate:
    """The statistic with the quantiles that it has if documents are drawn with replacement; see `estimates`."""
    (result,) = estimates(lambda weight: statistic(weight).unsqueeze(0), document, replicates)
    return result


def estimates(statistics: Statistic, document: Tensor, replicates: int = REPLICATES) -> list[Estimate]:
    """Several statistics at once, from the same draws.

    Args:
        statistics: a function of the weight of each token, which gives a vector.
        document: (N,), the number of the document of each token.
        replicates: how often documents are drawn.
    """
    number = int(document.max()) + 1
    random = torch.Generator().manual_seed(SEED)
    draws = torch.randint(number, (replicates, number), generator=random)
    resampled = torch.stack([statistics(draw.bincount(minlength=number).double()[document]) for draw in draws])
    ends = resampled.nanquantile(torch.tensor([0.025, 0.975], dtype=torch.float64), 0)
    values = statistics(torch.ones(len(document), dtype=torch.float64))
    return [Estimate(*row) for row in torch.stack([values, *ends], 1).tolist()]


def mean(values: Tensor) -> Statistic:
    """The mean of a column."""
    return lambda weight: (weight * values).sum() / weight.sum()


def ratio(above: Tensor, below: Tensor) -> Statistic:
    """The sum of a column over the sum of another."""
    return lambda weight: (weight * above).sum() / (weight * below).sum()


def explained(total: Tensor, rest: Tensor) -> Statistic:
    """1 - Var(rest) / Var(total)."""

    def variance(values: Tensor, weight: Tensor) -> Tensor:
        centred = values - (weight * values).sum() / weight.sum()
        return (weight * centred.square()).sum()

    return lambda weight: 1 - variance(rest, weight) / variance(total, weight)


def calibration_error(confidence: Tensor, right: Tensor, bins: int = 15) -> Statistic:
    """The expected calibration error in bins of equal width."""
    place = ((confidence * bins).ceil() - 1).clamp(0, bins - 1).long()

    def error(weight: Tensor) -> Tensor:
        excess = torch.zeros(bins, dtype=torch.float64).scatter_add(0, place, weight * (right - confidence))
        return excess.abs().sum() / weight.sum()

    return error


def auroc(scores: Tensor, positive: Tensor, strata: Tensor | None = None) -> Statistic:
    """The chance that a positive sample scores higher than another one of the same stratum; a tie counts half."""
    ranks = scores.unique(return_inverse=True)[1]
    groups = torch.zeros_like(ranks) if strata is None else strata
    keys, place = (groups * (int(ranks.max()) + 1) + ranks).unique(return_inverse=True)
    stratum = keys // (int(ranks.max()) + 1)
    first = torch.searchsorted(stratum, stratum)  # the first key of the stratum of each key

    def area(weight: Tensor) -> Tensor:
        sides = [torch.zeros(len(keys), dtype=torch.float64) for _ in range(2)]
        wins, losses = (
            side.scatter_add(0, place, weight * flag) for side, flag in zip(sides, (positive, ~positive), strict=True)
        )
        before = torch.cat([losses.new_zeros(1), losses.cumsum(0)])
        below = before[:-1] - before[first] + losses / 2
        last = torch.searchsorted(stratum, stratum, right=True)
        pairs = wins * (before[last] - before[first])
        return (wins * below).sum() / pairs.sum()

    return area


def beyond(area: Statistic, within: Statistic, baseline: Statistic) -> Statistic:
    """The AUROC of a score over all pairs, within strata, and what it tells there beyond the baseline.

    The last two are for the score, and for its negative.
    """

    def statistics(weight: Tensor) -> Tensor:
        stratified, base = within(weight), baseline(weight)
        return torch.stack([area(weight), stratified, stratified - base, 1 - stratified - base])

    return statistics


def equal_strata(values: Tensor, strata: int) -> Tensor:
    """The number of the stratum of each value; strata are quantiles, and equal values share one."""
    edges = values.sort().values[torch.arange(1, strata) * len(values) // strata].unique()
    return torch.searchsorted(edges, values, right=True)


def document_means(values: Tensor, document: Tensor) -> Tensor:
    """The mean of a column over each document."""
    count = document.bincount().double()
    return torch.zeros_like(count).scatter_add(0, document, values.double()) / count
