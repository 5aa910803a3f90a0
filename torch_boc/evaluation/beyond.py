"""Does the gap, its free part or the concentration tell familiar from unfamiliar inputs beyond confidence?

At a given confidence the three are increasing functions of one another: gap = forced_gap + concentration * room, where
the forced part and the room follow from the confidence. So there is one question, asked in three scales and two ways:

- within strata of confidence: only samples of about the same confidence are compared;
- with a model: does a logistic regression on confidence and the quantity rank new samples better than confidence does?

Confidence is taken by its odds, which do not saturate. Strata are not infinitely thin, so a quantity that follows
confidence, as the gap does, still profits from what is left of it there: compare with confidence itself in the strata.
The concentration follows it least, and is the one to look at.
"""

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .._optional import require
from ..calibration.base import require_sklearn
from ..core.coins import Coins
from ..data.sets import LogitSet
from ..functional.bounds import free_gap
from ..functional.evidence import gather
from ..report.results import SPLINE, frame
from ..report.tables import BeyondRow
from .bootstrap import random_numbers, with_intervals
from .inputs import TEST, check_names, check_positive, check_seed, check_sets, single_set
from .probing import ordered, row_blocks
from .separation import paired_difference
from .strata import Pair, confidence_strata, interval_within, pairs_within, separate_within

QUANTITIES = ("confidence", "gap", "free_gap", "concentration")
WAYS = ("alone", "strata", "model")
KNOTS = 9
SAMPLES_A_KNOT = 50
# Of the penalty: weak, for the gap follows confidence so closely that what it adds needs large coefficients.
INVERSE_PENALTY = 1e4
DECIMALS = 9


def beyond_confidence(
    id: Any,
    ood: Any,
    *,
    how: Collection[str] = WAYS,
    what: Collection[str] = QUANTITIES[1:],
    folds: int = 5,
    strata: int = 100,
    replicates: int = 1000,
    seed: int = 42,
    from_probabilities: bool = False,
) -> Any:
    """How well confidence, gap, free gap and concentration separate two sets: alone, at equal confidence, in a model.

    Args:
        id: the in-distribution set, as anything that `logit_set` takes.
        ood: the out-of-distribution set, likewise.
        how: the ways to ask, among alone, strata and model: fewer take less time.
        what: the quantities to ask about, among gap, free_gap and concentration; confidence is always there.
        folds: of the cross-validation, at most as many as the smaller set has samples.
        strata: of confidence, about equally many samples of both sets together in each; equal confidences share one.
            Few strata leave much of confidence in each, many leave few pairs to compare.
        replicates: of the bootstrap, for intervals of 95 %.
        seed: of the bootstrap and of the folds.
        from_probabilities: whether the sets hold probabilities in the place of logits; see `logit_set`.

    Returns:
        A DataFrame. `how` is "alone", "strata" or "model"; `what` the quantity, always turned so that higher = more
        in-distribution: confidence, -gap, -free_gap, -concentration. `auroc` with its interval: 0.5 tells nothing,
        below 0.5 the quantity separates the other way round. `versus_confidence` is the difference from confidence,
        with DeLong's paired interval; `pairs`, how many pairs of samples were compared.

        In strata only samples of the same stratum are compared, and every such pair counts the same; NaN if there is
        none. Models are logistic and judged on samples that they have not seen, within a fold: "confidence" is linear
        in the rank of confidence, so monotone; "confidence_spline" any function of it, piecewise linear; the others
        add the quantity in the same way and its product with confidence, and are compared with the better of these
        two. Their intervals are for new samples, not for new fits. A set of a single sample has no model: NaN.

        The gain of a model is biased downwards: it has more to learn from the same samples than confidence alone has.
        If the quantity tells nothing, about half of the intervals of the gain lie below 0, and a small true gain is
        found in strata long before it shows in a model.

    >>> logits = torch.randn(400, 5, generator=torch.Generator().manual_seed(0))
    >>> table = beyond_confidence(3 * logits[:200], 2 * logits[200:], strata=10, replicates=20)
    >>> table[["how", "what", "auroc"]].round(2).iloc[[0, 1, 4, 5]].to_dict("list")
    {'how': ['alone', 'alone', 'strata', 'strata'], 'what': ['confidence', 'gap', 'confidence', 'gap'],
    'auroc': [0.65, 0.63, 0.53, 0.46]}
    """
    require("pandas", purpose="evaluation needs")  # or an error before the work
    folds, strata, replicates = check_positive(folds=folds, strata=strata, replicates=replicates)
    if folds < 2:
        raise ValueError(f"expected folds as an integer of at least 2, got {folds}")
    check_names(how, WAYS, "how")
    check_names(what, QUANTITIES[1:], "what")
    kind, seed = {"from_probabilities": from_probabilities}, check_seed(seed)
    sets = (single_set(id, TEST, **kind), single_set(ood, "ood", **kind))
    check_sets(sets[0], {"ood": sets[1]})
    columns = {name: pair for name, pair in _quantities(sets).items() if name == "confidence" or name in what}
    rows: list[BeyondRow] = []
    for way in (way for way in WAYS if way in how):
        if way == "model":
            scores, places = _model_scores(columns, folds, seed)
        else:
            scores, places = columns, confidence_strata(columns["confidence"], strata if way == "strata" else 1)
        rows += _rows(way, scores, places, replicates, seed)
    return frame(BeyondRow, rows)


def _rows(how: str, scores: Mapping[str, Pair], places: Pair, replicates: int, seed: int) -> list[BeyondRow]:
    found = {what: separate_within(pair, places) for what, pair in scores.items()}
    baseline = max((found[x] for x in ("confidence", SPLINE) if x in found), key=lambda x: x.auroc)
    rows = []
    for what, result in found.items():
        numbers = random_numbers(seed, "beyond", how, what)
        difference, low, high = paired_difference(result, baseline)
        values = {"auroc": result.auroc, "versus_confidence": difference}
        around = interval_within(result.auroc, scores[what], places, replicates, numbers)
        columns = with_intervals(values, {"auroc": around, "versus_confidence": (low, high)})
        rows.append(BeyondRow(how=how, what=what, pairs=pairs_within(places), **columns))
    return rows


def _quantities(sets: tuple[LogitSet, LogitSet]) -> dict[str, Pair]:
    """Each quantity for both sets, higher = more in-distribution."""
    columns: list[tuple[Tensor, ...]] = []
    for data in sets:
        parts = [gather(logits).coins for logits, _ in row_blocks(data)]
        coins = Coins(*(torch.cat(column) for column in zip(*parts, strict=True)))
        free = free_gap(coins.odds, coins.concentration, data.num_classes)
        columns.append((-coins.odds, -coins.gap, -free, -coins.concentration))
    return {name: (columns[0][i], columns[1][i]) for i, name in enumerate(QUANTITIES)}


def _model_scores(columns: Mapping[str, Pair], folds: int, seed: int) -> tuple[dict[str, Pair], Pair]:
    """What each model says of the samples that it has not seen, and the fold of each sample."""
    sizes = [len(x) for x in columns["confidence"]]
    folds = min(folds, *sizes)
    drawn = [torch.from_numpy(random_numbers(seed, "folds", str(i)).permutation(n)) for i, n in enumerate(sizes)]
    fold, known = torch.cat(drawn) % folds, torch.arange(sum(sizes)) < sizes[0]
    if folds == 1:  # nothing to learn from: no two samples are in one fold
        fold = known.long()
    pooled = {name: torch.cat(pair) for name, pair in columns.items()}
    said = {"confidence": [pooled["confidence"]], SPLINE: [pooled["confidence"]]}
    said |= {name: [pooled["confidence"], x] for name, x in pooled.items() if name != "confidence"}
    scores = {}
    for name, chosen in said.items():
        knots = 0 if name == "confidence" else min(KNOTS, len(known) // SAMPLES_A_KNOT)
        score = torch.zeros(len(known), dtype=torch.float64)
        for i in range(folds if folds > 1 else 0):
            score[fold == i] = _fit_and_predict(chosen, known, fold != i, knots)
        scores[name] = (score[: sizes[0]], score[sizes[0] :])
    return scores, (fold[: sizes[0]], fold[sizes[0] :])


def _fit_and_predict(columns: Sequence[Tensor], known: Tensor, seen: Tensor, knots: int) -> Tensor:
    """The log-odds of being in-distribution for the samples that are not `seen`, by a model of those that are."""
    features = _features(columns, seen, knots)
    if not features.shape[1]:
        return torch.zeros(int((~seen).sum()), dtype=torch.float64)
    regression = require_sklearn().linear_model.LogisticRegression(C=INVERSE_PENALTY, solver="newton-cholesky")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sets that are perfectly apart: the penalty decides how steep is steep enough
        regression.fit(features[seen].numpy(), known[seen].numpy())
    said = torch.from_numpy(regression.decision_function(features[~seen].numpy()))
    return said.round(decimals=DECIMALS)  # equal samples stay equal, whatever the order of summation


def _features(columns: Sequence[Tensor], seen: Tensor, knots: int) -> Tensor:
    """Of each quantity its rank among the samples seen, in [0, 1], and hinges on it; of two, their product as well.

    Ranks make the model the same for every increasing function of a quantity. One that does not vary is left out.
    """
    ranks, found = [], []
    for column in columns:
        rising = ordered(column[seen])
        if rising[0] < rising[-1]:
            below, up_to = (torch.searchsorted(rising, column, right=right) for right in (False, True))
            ranks.append((below + up_to).double() / (2 * len(rising)))
            edges = torch.linspace(0, 1, knots + 2, dtype=torch.float64)[1:-1]
            found += [ranks[-1].unsqueeze(1), (ranks[-1].unsqueeze(1) - edges).clamp_min(0)]
    if len(ranks) == 2:
        found.append((ranks[0] * ranks[1]).unsqueeze(1))
    return torch.cat(found, 1) if found else torch.empty(len(seen), 0)
