"""Curves of a score: its ROC, thinned to what the eye can see, and its histogram in each set."""

from bisect import bisect_right
from collections.abc import Mapping

import torch
from torch import Tensor

from ..functional.separation import share_above
from ..report.tables import HistogramRow

# The curve is read off at this many thresholds from either set, then thinned to steps of this length in FPR + TPR.
# A monotone curve stays within L / sqrt(8) of a chord of length L so measured: 0.0018 for the steps, and 0.0002.
THRESHOLDS, STEP = 4000, 0.005
HISTOGRAM_BINS = 50
TAILS = (0.005, 0.995)


def roc_curve(positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """(FPR, TPR) of sorted scores, from (0, 0) to (1, 1), nowhere further than 0.002 from the full curve.

    >>> roc_curve(torch.tensor([2.0, 3.0]), torch.tensor([1.0, 2.0]))
    (tensor([0.0000, 0.0000, 0.5000, 1.0000], dtype=torch.float64),
     tensor([0.0000, 0.5000, 1.0000, 1.0000], dtype=torch.float64))
    """
    thresholds = torch.cat([_some(positive), _some(negative)]).unique().flip(0)
    fpr, tpr = (_shares_above(ordered, thresholds) for ordered in (negative, positive))
    fresh = torch.cat([torch.ones(1, dtype=torch.bool), (fpr + tpr).diff() > 0])
    fpr, tpr = fpr[fresh], tpr[fresh]
    corners = _corners(fpr) & _corners(tpr)
    fpr, tpr = fpr[corners], tpr[corners]
    chosen = _steps(fpr + tpr)
    return fpr[chosen], tpr[chosen]


def histogram_rows(score: str, sets: Mapping[str, Tensor]) -> list[HistogramRow]:
    """Shares of sorted scores in common bins between robust quantiles; what lies outside counts in the end bins."""
    edges = _edges(list(sets.values()))
    rows = []
    for name, ordered in sets.items():
        inner = torch.searchsorted(ordered, edges[1:-1])
        counts = torch.cat([inner.new_zeros(1), inner, inner.new_tensor([len(ordered)])]).diff()
        shares = (counts.double() / len(ordered)).tolist()
        bins = zip(edges[:-1].tolist(), edges[1:].tolist(), shares, strict=True)
        rows += [HistogramRow(score, name, low, high, share) for low, high, share in bins]
    return rows


def _some(ordered: Tensor) -> Tensor:
    """At most `THRESHOLDS` of the scores, evenly by rank."""
    if len(ordered) <= THRESHOLDS:
        return ordered
    return ordered[torch.arange(THRESHOLDS) * (len(ordered) - 1) // (THRESHOLDS - 1)]


def _shares_above(ordered: Tensor, thresholds: Tensor) -> Tensor:
    """The shares above and at or above each falling threshold, in turn, so that the ends of a tie are both there."""
    return torch.stack([share_above(ordered, thresholds, strict=strict) for strict in (True, False)], 1).flatten()


def _corners(axis: Tensor) -> Tensor:
    """Which points are not inside a straight line on which `axis` stays the same; the first and last always."""
    moves = axis.diff() > 0
    end = torch.ones(1, dtype=torch.bool)
    return torch.cat([end, moves[1:] | moves[:-1], end])


def _steps(length: Tensor) -> Tensor:
    """Indices from the first to the last, each as far as `STEP` allows, or the next."""
    values = length.tolist()
    chosen = [0]
    while chosen[-1] < len(values) - 1:
        furthest = bisect_right(values, values[chosen[-1]] + STEP) - 1
        chosen.append(max(chosen[-1] + 1, furthest))
    return torch.tensor(chosen)


def _edges(sets: list[Tensor]) -> Tensor:
    """Edges of equal bins that hold the bulk of every set."""
    finite = [x for x in (ordered[ordered.isfinite()] for ordered in sets) if len(x)]
    low = min((float(x[int(TAILS[0] * (len(x) - 1))]) for x in finite), default=0.0)
    high = max((float(x[-1 - int((1 - TAILS[1]) * (len(x) - 1))]) for x in finite), default=low)
    if not high - low > 1e-12 * max(abs(low), abs(high)):  # one value, in the middle
        margin = 0.5 * max(abs(low), 1.0)
        low, high = low - margin, high + margin
    return torch.linspace(low, high, HISTOGRAM_BINS + 1, dtype=torch.float64)
