"""The procedure of Benjamini and Hochberg: which of many p-values are discoveries, on the device."""

import torch
from torch import Tensor

from ..core.precision import widen


def adjusted_p_values(p: Tensor) -> Tensor:
    """The p-values of Benjamini and Hochberg: p_(i) m / i, made monotone. NaN stays NaN, and does not count in m.

    To reject those that are at most `fdr` keeps the expected share of false discoveries below `fdr`. This holds for
    conformal p-values that share their held-out samples too (Bates and others, 2023), if they are conservative.

    Args:
        p: (N,) p-values.

    >>> adjusted_p_values(torch.tensor([0.01, 0.04, 0.03, 0.5]))
    tensor([0.0400, 0.0533, 0.0533, 0.5000], dtype=torch.float64)
    """
    rising, order = widen(p).sort()  # NaN comes last
    total = (~rising.isnan()).sum()
    each = rising * total / torch.arange(1, p.numel() + 1, dtype=rising.dtype, device=p.device)
    each = torch.where(rising.isnan(), torch.inf, each)
    lowest = each.flip(0).cummin(0).values.flip(0).clamp_max(1.0) if p.numel() else each
    return torch.empty_like(lowest).scatter(0, order, torch.where(rising.isnan(), torch.nan, lowest))


def discovery_level(p: Tensor, tested: Tensor, fdr: float) -> Tensor:
    """The largest p-value that the procedure of Benjamini and Hochberg rejects; -1 if it rejects none.

    Nothing is sorted but the p-values of the places, however many samples are tested.

    Args:
        p: (groups, places), from `place_p_values`.
        tested: (groups, places), the number of tested samples at each place.
        fdr: the expected share of false discoveries.
    """
    rising, order = p.reshape(-1).sort()
    number = tested.reshape(-1).index_select(0, order)
    upto = widen(number.cumsum(0))
    adjusted = rising * upto[-1] / upto
    return torch.where((number > 0) & (adjusted <= fdr), rising, -1.0).amax()
