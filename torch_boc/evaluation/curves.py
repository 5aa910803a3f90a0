"""The ROC curve of a score, with few points, and its histogram in each set."""

from bisect import bisect_right
from collections.abc import Mapping

import torch
from torch import Tensor

from ..functional.separation import share_above
from ..report.tables import HistogramRow

# The curve is computed at this many thresholds from each set. Then points are left out, so that FPR + TPR grows in
# steps of at most `STEP`. A monotone curve is nowhere further than L / sqrt(8) from a chord over which FPR + TPR grows
# by L: 0.0018 for the steps, and 0.0002 for the thresholds.
THRESHOLDS, STEP = 4000, 0.005
HISTOGRAM_BINS = 50
TAILS = (0.005, 0.995)


def roc_curve(positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """The FPR and the TPR of scores in rising order, from (0, 0) to (1, 1).

    No point of the full curve is further than 0.002 from this one.

    >>> roc_curve(torch.tensor([2.0, 3.0]), torch.tensor([1.0, 2.0]))
    (tensor([0.0000, 0.0000, 0.5000, 1.0000], dtype=torch.float64),
     tensor([0.0000, 0.5000, 1.0000, 1.0000], dtype=torch.float64))
    """
    thresholds = torch.cat([_some(positive), _some(negative)]).unique().flip(0)
    fpr, tpr = (_shares_above(ordered, thresholds) for ordered in (negative, positive))
    return thin_curve(fpr, tpr)


def thin_curve(fpr: Tensor, tpr: Tensor) -> tuple[Tensor, Tensor]:
    """A curve with few points, none of them on a straight line between its neighbours."""
    fresh = torch.cat([torch.ones(1, dtype=torch.bool), (fpr + tpr).diff() > 0])
    fpr, tpr = fpr[fresh], tpr[fresh]
    corners = _corners(fpr) & _corners(tpr)
    fpr, tpr = fpr[corners], tpr[corners]
    chosen = _steps(fpr + tpr)
    return fpr[chosen], tpr[chosen]


def histogram_rows(score: str, sets: Mapping[str, Tensor]) -> list[HistogramRow]:
    """The share of each set in bins that are the same for all sets; scores are in rising order.

    The bins cover the bulk of every set. The first and the last bin include all scores beyond them.
    """
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
    """At most `THRESHOLDS` of the scores, at equal distances in rank."""
    if len(ordered) <= THRESHOLDS:
        return ordered
    return ordered[torch.arange(THRESHOLDS) * (len(ordered) - 1) // (THRESHOLDS - 1)]


def _shares_above(ordered: Tensor, thresholds: Tensor) -> Tensor:
    """For falling thresholds, the share above each threshold, and then the share at or above it.

    With both, a tie of several scores gives the two ends of a straight line.
    """
    return torch.stack([share_above(ordered, thresholds, strict=strict) for strict in (True, False)], 1).flatten()


def _corners(axis: Tensor) -> Tensor:
    """Which points to keep: the ends, and every point whose value of `axis` differs from that of a neighbour."""
    moves = axis.diff() > 0
    end = torch.ones(1, dtype=torch.bool)
    return torch.cat([end, moves[1:] | moves[:-1], end])


def _steps(length: Tensor) -> Tensor:
    """Indices of the points to keep. Each is as far as `STEP` allows from the one before, or is the next point."""
    values = length.tolist()
    chosen = [0]
    while chosen[-1] < len(values) - 1:
        furthest = bisect_right(values, values[chosen[-1]] + STEP) - 1
        chosen.append(max(chosen[-1] + 1, furthest))
    return torch.tensor(chosen)


def _edges(sets: list[Tensor]) -> Tensor:
    """The edges of equal bins that cover the bulk of every set."""
    finite = [x[x.isfinite()] for x in sets if bool(x.isfinite().any())]
    low = min((float(x[int(TAILS[0] * (len(x) - 1))]) for x in finite), default=0.0)
    high = max((float(x[-1 - int((1 - TAILS[1]) * (len(x) - 1))]) for x in finite), default=low)
    if not high - low > 1e-12 * max(abs(low), abs(high)):  # there is one value only, which is put in the middle
        margin = 0.5 * max(abs(low), 1.0)
        low, high = low - margin, high + margin
    return torch.linspace(low, high, HISTOGRAM_BINS + 1, dtype=torch.float64)
