"""Do the gap, its free part or the concentration tell in-distribution from OOD samples better than confidence alone?

At a given confidence, each of the three quantities is an increasing function of the others:
gap = forced_gap + concentration * room, where the forced gap and the room follow from the confidence. So they answer
the same question on three scales. The question is asked in two ways:

- within strata of confidence: only samples of about the same confidence are compared;
- with a model: does a logistic regression on confidence and the quantity rank new samples better than confidence does?

Confidence is represented by the odds, which do not saturate. Within a stratum the confidence still varies a little. A
quantity that follows confidence, as the gap does, profits from this; therefore confidence itself is also compared in
the strata. The concentration follows confidence least, so its numbers are the most informative.

A model of confidence and a quantity has learnt from out-of-distribution samples. Scores that have learnt nothing, such
as the energy, may still rank better. Therefore such scores stand beside the quantities, and the concentration is also
asked for what it adds to confidence and such a score together.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .._optional import require
from ..data.sets import LogitSet
from ..functional.bounds import free_gap
from ..functional.evidence import gather
from ..functional.registry import scores
from ..functional.score import need_extras, rank
from ..report.results import SPLINE, frame
from ..report.tables import BeyondRow
from .bootstrap import random_numbers, with_intervals
from .detection import LOST
from .inputs import TEST, check_names, check_positive, check_seed, check_sets, single_set
from .models import AND_CONCENTRATION, model_scores
from .probing import row_blocks
from .separation import paired_difference
from .strata import Pair, confidence_strata, interval_within, pairs_within, separate_within

QUANTITIES = ("confidence", "gap", "free_gap", "concentration")
BESIDE = ("energy", "gen")
WAYS = ("alone", "strata", "model")


def beyond_confidence(
    id: Any,
    ood: Any,
    *,
    how: Collection[str] = WAYS,
    what: Collection[str] = QUANTITIES[1:],
    beside: Collection[str] = BESIDE,
    folds: int = 5,
    strata: int = 100,
    replicates: int = 1000,
    seed: int = 42,
    from_probabilities: bool = False,
) -> Any:
    """How well confidence, gap, free gap and concentration separate two sets: alone, at equal confidence, in a model.

    Args:
        id: the in-distribution set, as anything that `logit_set` takes.
        ood: the out-of-distribution set, as anything that `logit_set` takes.
        how: the ways to compare, among "alone", "strata" and "model". Fewer ways take less time.
        what: the quantities to compare with confidence, among "gap", "free_gap" and "concentration".
        beside: scores of `torch_boc.functional.scores` to compare as well. From probabilities there is no energy.
        folds: the number of folds of the cross-validation. If the smaller set has fewer samples, it is that number.
        strata: the number of strata of confidence. Each has about as many samples of both sets together, and equal
            confidences are in the same stratum. With few strata, confidence still varies within each; with many, there
            are few pairs to compare.
        replicates: the number of bootstrap samples for the intervals of 95 %.
        seed: the seed of the bootstrap and of the folds.
        from_probabilities: whether the sets hold probabilities instead of logits; see `logit_set`.

    Returns:
        A DataFrame with the columns of `torch_boc.report.tables.BeyondRow`. `how` is "alone", "strata" or "model".
        `what` is the quantity, with the sign for which higher = more in-distribution: confidence, -gap, -free_gap,
        -concentration; or a score of `beside`. `auroc` has an interval; 0.5 means that the quantity tells nothing, and
        below 0.5 it ranks backwards. `versus_confidence` is the difference from the AUROC of confidence, with DeLong's
        paired interval. `pairs` is the number of pairs of samples that were compared.

        "strata": only samples of the same stratum are compared, and every pair has the same weight. The AUROC is NaN if
        there is no pair.

        "model": logistic regressions are judged on samples that they have not seen, fold by fold. The model
        "confidence" is linear in the rank of the confidence, so it is monotone. The model "confidence_spline" is
        piecewise linear in it. The other models add the quantity in the same way, and its product with confidence; they
        are compared with the better of the first two. A model such as "energy_concentration" knows confidence, the
        energy and the concentration; `versus_without` is its difference from the model without the concentration, and
        is NaN in all other rows. The intervals are for new samples and the same fits. If a set has one sample only,
        there is no model, and the AUROC is NaN.

        The difference of a model from confidence is biased downwards, because the larger model has more to learn from
        the same samples. If the quantity tells nothing, about half of the intervals of the difference lie below 0, and
        a small true gain is found in strata long before it shows in a model.

    >>> logits = torch.randn(400, 5, generator=torch.Generator().manual_seed(0))
    >>> table = beyond_confidence(3 * logits[:200], 2 * logits[200:], beside=(), strata=10, replicates=20)
    >>> table[["how", "what", "auroc"]].round(2).iloc[[0, 1, 4, 5]].to_dict("list")
    {'how': ['alone', 'alone', 'strata', 'strata'], 'what': ['confidence', 'gap', 'confidence', 'gap'],
    'auroc': [0.65, 0.63, 0.53, 0.46]}
    """
    require("pandas", purpose="evaluation needs")  # an error comes before the work
    folds, strata, replicates = check_positive(folds=folds, strata=strata, replicates=replicates)
    if folds < 2:
        raise ValueError(f"expected folds as an integer of at least 2, got {folds}")
    check_names(how, WAYS, "how")
    check_names(what, QUANTITIES[1:], "what")
    beside = _check_beside(beside, from_probabilities)
    kind, seed = {"from_probabilities": from_probabilities}, check_seed(seed)
    sets = (single_set(id, TEST, **kind), single_set(ood, "ood", **kind))
    check_sets(sets[0], {"ood": sets[1]})
    columns = _quantities(sets, [name for name in QUANTITIES if name == "confidence" or name in what], beside)
    rows: list[BeyondRow] = []
    for way in (way for way in WAYS if way in how):
        if way == "model":
            found, places = model_scores(columns, folds, seed, beside)
        else:
            found, places = columns, confidence_strata(columns["confidence"], strata if way == "strata" else 1)
        rows += _rows(way, found, places, replicates, seed)
    return frame(BeyondRow, rows)


def _rows(how: str, given: Mapping[str, Pair], places: Pair, replicates: int, seed: int) -> list[BeyondRow]:
    found = {what: separate_within(pair, places) for what, pair in given.items()}
    baseline = max((found[x] for x in ("confidence", SPLINE) if x in found), key=lambda x: x.auroc)
    rows = []
    for what, result in found.items():
        numbers = random_numbers(seed, "beyond", how, what)
        difference, low, high = paired_difference(result, baseline)
        without = found.get(what.removesuffix(AND_CONCENTRATION))
        added = (math.nan,) * 3 if without is None or without is result else paired_difference(result, without)
        values = {"auroc": result.auroc, "versus_confidence": difference, "versus_without": added[0]}
        around = interval_within(result.auroc, given[what], places, replicates, numbers)
        columns = with_intervals(
            values, {"auroc": around, "versus_confidence": (low, high), "versus_without": (added[1], added[2])}
        )
        rows.append(BeyondRow(how=how, what=what, pairs=pairs_within(places), **columns))
    return rows


def _check_beside(names: Collection[str], from_probabilities: bool) -> list[str]:
    """The scores to compare as well, without those of which probabilities leave nothing."""
    check_names(names, tuple(scores), "beside")
    return [name for name in scores if name in names and not (from_probabilities and name in LOST)]


def _quantities(sets: tuple[LogitSet, LogitSet], names: Sequence[str], beside: Sequence[str]) -> dict[str, Pair]:
    """Each quantity, and each score of `beside`, for both sets, higher = more in-distribution."""
    columns = []
    for data in sets:
        parts = [_of_block(logits, beside) for logits, _ in row_blocks(data)]
        columns.append({name: torch.cat([part[name] for part in parts]) for name in (*names, *beside)})
    return {name: (columns[0][name], columns[1][name]) for name in columns[0]}


def _of_block(logits: Tensor, beside: Sequence[str]) -> dict[str, Tensor]:
    evidence = gather(logits, extras=need_extras(beside))
    coins = evidence.coins
    free = free_gap(coins.odds, coins.concentration, evidence.num_classes)
    numbers = (-coins.odds, -coins.gap, -free, -coins.concentration)
    return {**dict(zip(QUANTITIES, numbers, strict=True)), **rank(evidence, beside)}
