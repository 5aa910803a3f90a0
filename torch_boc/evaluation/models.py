"""Cross-validated models that tell two sets apart by confidence and other quantities; see `beyond.py`."""

import warnings
from collections.abc import Mapping, Sequence
from itertools import combinations

import torch
from torch import Tensor

from ..calibration.base import require_sklearn
from ..report.results import SPLINE
from .bootstrap import random_numbers
from .probing import ordered
from .strata import Pair

KNOTS = 9
SAMPLES_A_KNOT = 50
# scikit-learn's C. The penalty is weak: the gap follows confidence so closely that its coefficients must be large.
INVERSE_PENALTY = 1e4
DECIMALS = 9
# The end of the name of a model that knows the concentration beside another score.
AND_CONCENTRATION = "_concentration"


def model_scores(
    columns: Mapping[str, Pair], folds: int, seed: int, beside: Sequence[str] = ()
) -> tuple[dict[str, Pair], Pair]:
    """The scores that each model gives to the samples that it has not seen, and the fold of each sample."""
    sizes = [len(x) for x in columns["confidence"]]
    folds = min(folds, *sizes)
    drawn = [torch.from_numpy(random_numbers(seed, "folds", str(i)).permutation(n)) for i, n in enumerate(sizes)]
    fold, known = torch.cat(drawn) % folds, torch.arange(sum(sizes)) < sizes[0]
    if folds == 1:  # there is nothing to learn from: the two sets are put into different folds, without any pair
        fold = known.long()
    pooled = {name: torch.cat(pair) for name, pair in columns.items()}
    said = {"confidence": [pooled["confidence"]], SPLINE: [pooled["confidence"]]}
    said |= {name: [pooled["confidence"], x] for name, x in pooled.items() if name != "confidence"}
    if "concentration" in pooled:
        said |= {name + AND_CONCENTRATION: [*said[name], pooled["concentration"]] for name in beside}
    found = {}
    for name, chosen in said.items():
        knots = 0 if name == "confidence" else min(KNOTS, len(known) // SAMPLES_A_KNOT)
        score = torch.zeros(len(known), dtype=torch.float64)
        for i in range(folds if folds > 1 else 0):
            score[fold == i] = _fit_and_predict(chosen, known, fold != i, knots)
        found[name] = (score[: sizes[0]], score[sizes[0] :])
    return found, (fold[: sizes[0]], fold[sizes[0] :])


def _fit_and_predict(columns: Sequence[Tensor], known: Tensor, seen: Tensor, knots: int) -> Tensor:
    """Fit a model to the samples that are `seen`; returns the log-odds of being in-distribution for the others."""
    features = features_of(columns, seen, knots)
    if not features.shape[1]:
        return torch.zeros(int((~seen).sum()), dtype=torch.float64)
    regression = require_sklearn().linear_model.LogisticRegression(C=INVERSE_PENALTY, solver="newton-cholesky")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # if the sets are perfectly separated, the search may not converge
        regression.fit(features[seen].numpy(), known[seen].numpy())
    said = torch.from_numpy(regression.decision_function(features[~seen].numpy()))
    return said.round(decimals=DECIMALS)  # equal samples have equal scores, whatever the order of summation


def features_of(columns: Sequence[Tensor], seen: Tensor, knots: int) -> Tensor:
    """For each quantity, its rank among the samples seen, in [0, 1], and hinge functions of the rank.

    For each two quantities, the product of their ranks is added. Because of the ranks, the model is the same for
    every increasing function of a quantity. A quantity that does not vary is left out.
    """
    ranks, found = [], []
    for column in columns:
        rising = ordered(column[seen])
        if rising[0] < rising[-1]:
            below, up_to = (torch.searchsorted(rising, column, right=right) for right in (False, True))
            ranks.append((below + up_to).double() / (2 * len(rising)))
            edges = torch.linspace(0, 1, knots + 2, dtype=torch.float64)[1:-1]
            found += [ranks[-1].unsqueeze(1), (ranks[-1].unsqueeze(1) - edges).clamp_min(0)]
    found += [(one * other).unsqueeze(1) for one, other in combinations(ranks, 2)]
    return torch.cat(found, 1) if found else torch.empty(len(seen), 0)
