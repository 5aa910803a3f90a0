"""The coherence gap of each set, with its forced and its free part."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.tally import equal_bin
from ..functional.bounds import forced_gap
from ..functional.summary import sum_by_bin
from .inputs import ProbedSet

ALPHA = 0.05


def gap_tables(sets: Sequence[ProbedSet], bins: int) -> dict[str, list[Any]]:
    """Rows of the tables `gaps` and `coherence`. The test set is first.

    These are the means over each set, and the means in equal bins of confidence, NaN without samples.
    """
    tables: dict[str, list[Any]] = {"gaps": [], "coherence": []}
    for data in sets:
        coins, classes = data.coins, data.data.num_classes
        confidence, gap, forced = coins.confidence, coins.gap, forced_gap(coins.odds, classes)
        p_value, free = data.scores["log_p_value"].exp(), coins.free_gap
        columns = [confidence, coins.dominance, gap, forced, free, coins.concentration, (p_value <= ALPHA).double()]
        *means, rejected, p = torch.stack([*columns, p_value]).mean(1).tolist()
        about = data.name, "ood" if tables["gaps"] else "id", len(gap)
        tables["gaps"].append((*about, *means, explained_share(gap, forced), rejected, p))
        inside = torch.stack([torch.ones_like(gap), confidence, gap, forced])
        samples, *sums = sum_by_bin(equal_bin(confidence, bins).expand(4, -1), inside, bins)
        rows = zip(samples.long().tolist(), *(torch.stack(sums) / samples).tolist(), strict=True)
        tables["coherence"] += [(data.name, i / bins, (i + 1) / bins, *values) for i, values in enumerate(rows)]
    return tables


def explained_share(values: Tensor, part: Tensor) -> float:
    """R² of `values` and a part of them: 1 - Var(values - part) / Var(values), at most 1; NaN if they do not vary.

    The part is not scaled. A regression, which scales it, could explain more.

    >>> round(explained_share(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0.0, 1.0, 2.0])), 4)
    0.8571
    """
    total, rest = values.double(), (values - part).double()
    spread = total.var(correction=0)
    rounding = (1e-14 * total.abs().amax()).square()
    return float(1 - rest.var(correction=0) / spread) if spread > rounding else math.nan
