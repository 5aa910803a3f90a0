"""What the logits tell beyond confidence: samples of equal confidence, and models that see more or less."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, QuantileTransformer
from torch import Tensor

from torch_boc.evaluation.detection import paired_difference, rank_scores, separate
from torch_boc.functional import bag_of_coins, bag_of_dice

FACES = (2, 4, 8)
BINS = 200
Columns = Mapping[str, Tensor]


class Gain(NamedTuple):
    """The AUROC of a model, and by how much it is above that of a smaller model, with an interval of 95 %."""

    auroc: float
    gain: float
    gain_low: float
    gain_high: float


def columns_of(logits: Tensor) -> dict[str, Tensor]:
    """What models may see of logits (N, C): odds, gap, concentration, energy, and the losses of dice."""
    coins, smallest = bag_of_coins(logits.double()), torch.finfo(torch.float64).tiny
    columns = {"p̂": -coins.odds.clamp_min(smallest).log(), "Δ": coins.gap, "ρ": coins.concentration}
    columns["energy"] = logits.double().logsumexp(-1)
    dice = bag_of_dice(logits, FACES).clamp_min(smallest).log().unbind(-1)
    return columns | {f"dice {faces}": loss for faces, loss in zip(FACES, dice, strict=True)}


def difference_at_equal_confidence(one: Columns, other: Columns, name: str) -> float:
    """The mean of a column in `one` minus that in `other`, over bins of confidence that both have samples in."""
    pooled = torch.cat([one["p̂"], other["p̂"]]).sort().values
    edges = pooled[torch.arange(1, BINS) * len(pooled) // BINS]
    counts, means = [], []
    for columns in (one, other):
        place = torch.searchsorted(edges, columns["p̂"])
        counts.append(place.bincount(minlength=BINS).double())
        means.append(place.bincount(columns[name], minlength=BINS) / counts[-1])
    weight = torch.minimum(*(count / count.sum() for count in counts))
    return float((weight * (means[0] - means[1]).nan_to_num()).sum() / weight.sum())


def gain(positive: Columns, negative: Columns, base: Sequence[str], more: Sequence[str]) -> Gain:
    """A model of `base` and `more` against one of `base`: which separates ID from OOD samples better?

    Both are logistic regressions on the ranks of the columns, their powers and products up to the third degree. They
    are fitted to a random half of the samples and judged on the other half. If `base` is a single column, it is also
    evaluated without a model, and the better one counts.
    """
    halves = [
        torch.from_numpy(np.random.default_rng(0).permutation(len(x["p̂"])) % 2 == 0) for x in (positive, negative)
    ]
    aurocs = []
    for names in (base, (*base, *more)):
        tables = [torch.stack([x[name] for name in names], 1) for x in (positive, negative)]
        seen = torch.cat([table[half] for table, half in zip(tables, halves, strict=True)])
        label = np.repeat([1, 0], [int(half.sum()) for half in halves])
        regression = LogisticRegression(C=1e4, solver="newton-cholesky", max_iter=1000)
        ranks = QuantileTransformer(n_quantiles=min(200, len(seen)), subsample=None)
        model = make_pipeline(ranks, PolynomialFeatures(3, include_bias=False), regression).fit(seen.numpy(), label)
        judged = [table[~half] for table, half in zip(tables, halves, strict=True)]
        scores = [torch.from_numpy(model.decision_function(table.numpy())) for table in judged]
        aurocs.append(separate(*map(rank_scores, scores)))
        if len(names) == 1:
            plain = separate(*(rank_scores(table[:, 0]) for table in judged))
            aurocs[-1] = max(aurocs[-1], plain, key=lambda x: x.auroc)
    return Gain(aurocs[1].auroc, *paired_difference(aurocs[1], aurocs[0]))
