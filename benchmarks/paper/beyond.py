"""Do the gap, its free part or the concentration tell in-distribution from OOD samples better than confidence alone?

At a given confidence, each of the three quantities is an increasing function of the others:
gap = forced_gap + concentration * room, where the forced gap and the room follow from the confidence. So they answer
the same question on three scales. The question is asked in two ways:

- within strata of confidence: only samples of about the same confidence are compared;
- with a model: does a logistic regression on confidence and the quantity rank new samples better than confidence does?

Confidence is represented by the odds, which do not saturate. Within a stratum the confidence still varies a little. A
quantity that follows confidence, as the gap does, profits from this; therefore confidence itself is also compared in
the strata. The concentration follows confidence least, so its numbers are the most informative.
"""

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Any

import pandas
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from torch_boc.evaluation import read_logits
from torch_boc.evaluation.intervals import auroc_interval, bootstrap_interval, random_numbers, replicate, with_intervals
from torch_boc.evaluation.samples import ordered
from torch_boc.evaluation.separation import CELLS, Separation, paired_difference, score_cells
from torch_boc.functional import bag_of_coins, free_gap

QUANTITIES = ("confidence", "gap", "free_gap", "concentration")
SPLINE = "confidence_spline"
WAYS = ("alone", "strata", "model")
FOLDS = 5
FEWEST_CELLS = 8
KNOTS = 9
SAMPLES_A_KNOT = 50
# scikit-learn's C. The penalty is weak: the gap follows confidence so closely that its coefficients must be large.
INVERSE_PENALTY = 1e4
DECIMALS = 9
Pair = tuple[Tensor, Tensor]


def beyond_confidence(
    id: Any,
    ood: Any,
    *,
    how: Collection[str] = WAYS,
    what: Collection[str] = QUANTITIES[1:],
    strata: int = 100,
    replicates: int = 1000,
    seed: int = 42,
) -> Any:
    """How well confidence, gap, free gap and concentration separate two sets: alone, at equal confidence, in a model.

    Args:
        id: the in-distribution set, as anything that `read_logits` takes.
        ood: the out-of-distribution set.
        how: the ways to compare, among `WAYS`.
        what: the quantities to compare with confidence.
        strata: the number of strata of confidence. With few strata, confidence still varies within each; with many,
            there are few pairs to compare.
        replicates: the number of bootstrap samples for the intervals of 95 %.
        seed: the seed of the bootstrap and of the folds.

    Returns:
        A DataFrame with a row for each way and quantity. `what` is the quantity, with the sign for which higher = more
        in-distribution. `auroc` has an interval; 0.5 means that the quantity tells nothing. `versus_confidence` is the
        difference from the AUROC of confidence, with DeLong's paired interval. `pairs` is the number of pairs of
        samples that were compared.

        "strata": only samples of the same stratum are compared, and every pair has the same weight.

        "model": logistic regressions are judged on samples that they have not seen, fold by fold. The model
        "confidence" is linear in the rank of the confidence, and "confidence_spline" is piecewise linear in it. The
        other models add the quantity in the same way, and its product with confidence; they are compared with the
        better of the first two. The difference is biased downwards, because the larger model has more to learn from
        the same samples: a small true gain is found in strata long before it shows in a model.
    """
    columns = _quantities(id, ood, [name for name in QUANTITIES if name == "confidence" or name in what])
    rows = []
    for way in (way for way in WAYS if way in how):
        if way == "model":
            found, places = model_scores(columns, seed)
        else:
            found, places = columns, confidence_strata(columns["confidence"], strata if way == "strata" else 1)
        rows += _rows(way, found, places, replicates, seed)
    return pandas.DataFrame(rows)


def _quantities(id: Any, ood: Any, names: Sequence[str]) -> dict[str, Pair]:
    """Each quantity for both sets, higher = more in-distribution."""
    sides = []
    for source, called in ((id, "id"), (ood, "ood")):
        logits = read_logits(source, called).logits.double()
        coins = bag_of_coins(logits)
        free = free_gap(coins.odds, coins.concentration, logits.shape[1])
        numbers = (-coins.odds, -coins.gap, -free, -coins.concentration)
        sides.append(dict(zip(QUANTITIES, numbers, strict=True)))
    return {name: (sides[0][name], sides[1][name]) for name in names}


def _rows(how: str, given: Mapping[str, Pair], places: Pair, replicates: int, seed: int) -> list[dict[str, Any]]:
    found = {what: separate_within(pair, places) for what, pair in given.items()}
    baseline = max((found[x] for x in ("confidence", SPLINE) if x in found), key=lambda x: x.auroc)
    known, strange = _sizes(places)
    rows = []
    for what, result in found.items():
        difference, low, high = paired_difference(result, baseline)
        around = interval_within(
            result.auroc, given[what], places, replicates, random_numbers(seed, "beyond", how, what)
        )
        columns = with_intervals(
            {"auroc": result.auroc, "versus_confidence": difference},
            {"auroc": around, "versus_confidence": (low, high)},
        )
        rows.append({"how": how, "what": what, **columns, "pairs": int((known * strange).sum())})
    return rows


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


def _wins(own: Tensor, others: Tensor, strata: Tensor, span: int) -> Pair:
    """For each of `own`, how many others of its stratum are below it (a tie counts half), and how many there are.

    A key is stratum * span + rank of the score.
    """
    rising = others.sort().values
    first, end = (torch.searchsorted(rising, edge) for edge in (strata * span, (strata + 1) * span))
    below = (torch.searchsorted(rising, own) + torch.searchsorted(rising, own, right=True)).double() / 2
    return below - first, (end - first).double()


def _sizes(strata: Pair) -> Pair:
    """The number of samples of each set in each stratum."""
    count = int(torch.cat(strata).max()) + 1
    return strata[0].bincount(minlength=count), strata[1].bincount(minlength=count)


def interval_within(auroc: float, scores: Pair, strata: Pair, replicates: int, numbers: Any) -> tuple[float, float]:
    """The 95 % interval of the AUROC, by the bootstrap on cells of neighbours in each stratum.

    The edges of the strata are the same in all replicates. If few pairs are on the wrong side, the interval is wider.
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
        """The AUROC of each replicate; the sums begin again in each stratum, and cells are in falling order."""
        alarms = negative.cumsum(1)
        wins = positive * (alarms[:, end] - alarms + negative / 2)
        pairs = positive * (alarms[:, end] - alarms[:, first] + negative[:, first])
        return wins.sum(1) / pairs.sum(1)

    counts = [torch.cat([part[side] for part in parts]) for side in (0, 1)]
    found = bootstrap_interval(auroc, *replicate(statistic, counts, replicates, numbers))
    known, strange = _sizes(strata)
    return auroc_interval(found, auroc, int(torch.minimum(known, strange).sum()))


def model_scores(columns: Mapping[str, Pair], seed: int) -> tuple[dict[str, Pair], Pair]:
    """The scores that each model gives to the samples that it has not seen, and the fold of each sample."""
    sizes = [len(x) for x in columns["confidence"]]
    folds = min(FOLDS, *sizes)
    drawn = [torch.from_numpy(random_numbers(seed, "folds", str(i)).permutation(n)) for i, n in enumerate(sizes)]
    fold, known = torch.cat(drawn) % folds, torch.arange(sum(sizes)) < sizes[0]
    pooled = {name: torch.cat(pair) for name, pair in columns.items()}
    said = {"confidence": [pooled["confidence"]], SPLINE: [pooled["confidence"]]}
    said |= {name: [pooled["confidence"], x] for name, x in pooled.items() if name != "confidence"}
    found = {}
    for name, chosen in said.items():
        knots = 0 if name == "confidence" else min(KNOTS, len(known) // SAMPLES_A_KNOT)
        score = torch.zeros(len(known), dtype=torch.float64)
        for i in range(folds):
            score[fold == i] = _fit_and_predict(chosen, known, fold != i, knots)
        found[name] = (score[: sizes[0]], score[sizes[0] :])
    return found, (fold[: sizes[0]], fold[sizes[0] :])


def _fit_and_predict(columns: Sequence[Tensor], known: Tensor, seen: Tensor, knots: int) -> Tensor:
    """Fit a model to the samples that are `seen`; returns the log-odds of being in-distribution for the others."""
    features = features_of(columns, seen, knots)
    if not features.shape[1]:
        return torch.zeros(int((~seen).sum()), dtype=torch.float64)
    regression = LogisticRegression(C=INVERSE_PENALTY, solver="newton-cholesky")
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
