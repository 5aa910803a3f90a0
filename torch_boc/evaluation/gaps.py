"""The coherence gap of each set, with its forced and its free part, and the effect of the number of trials."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..functional.bounds import forced_gap, free_gap
from ..functional.histogram import count, equal_bin
from ..functional.separation import auroc
from ..functional.summary import calibration_error
from ..functional.trials import log_p_value, sample_wins
from ..report.tables import CoherenceRow, GapRow, TrialRow
from .samples import ProbedSet, ordered

ALPHA = 0.05
VARIANTS = ("deterministic", "Monte Carlo")


def gap_rows(sets: Sequence[ProbedSet]) -> list[GapRow]:
    """The means over each set. The test set is the first."""
    rows = []
    for place, data in enumerate(sets):
        coins, classes = data.coins, data.data.num_classes
        forced, p_value = forced_gap(coins.odds, classes), data.scores["log_p_value"].exp()
        columns: dict[str, Tensor] = {
            "confidence": coins.confidence,
            "dominance": coins.dominance,
            "gap": coins.gap,
            "forced_gap": forced,
            "free_gap": free_gap(coins.odds, coins.concentration, classes),
            "concentration": coins.concentration,
            "rejection_rate": (p_value <= ALPHA).double(),
            "p_value": p_value,
        }
        means: dict[str, Any] = {name: float(column.mean()) for name, column in columns.items()}
        means |= {"samples": len(data.data), "r2": explained_share(coins.gap, forced)}
        rows.append(GapRow(set=data.name, kind="ood" if place else "id", **means))
    return rows


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


def coherence_rows(sets: Sequence[ProbedSet], bins: int) -> list[CoherenceRow]:
    """The mean gap of each set in equal bins of confidence. Bins without samples have NaN."""
    rows = []
    for data in sets:
        confidence, forced = data.coins.confidence, forced_gap(data.coins.odds, data.data.num_classes)
        place = equal_bin(confidence, bins)
        samples = count(place, torch.ones_like(confidence), bins)
        means = [(count(place, x, bins) / samples).tolist() for x in (confidence, data.coins.gap, forced)]
        for i, (number, *values) in enumerate(zip(samples.tolist(), *means, strict=True)):
            rows.append(CoherenceRow(data.name, i / bins, (i + 1) / bins, int(number), *values))
    return rows


def trial_rows(
    sets: Sequence[ProbedSet], trial_counts: Sequence[int], *, bins: int, seed: int, progress: Callable[[str], object]
) -> list[TrialRow]:
    """The calibration error of the dominance and the AUROC of the paper's score, for each number of trials.

    In the deterministic variant the confidence is the dominance itself, and the score uses the expected wins. In the
    Monte Carlo variant both are computed from sampled wins.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for variant in VARIANTS:
        for trials in trial_counts:
            progress(f"{variant}, {trials} trials")
            sampled = generator if variant == VARIANTS[1] else None
            (share, score), *others = (_flip(data, trials, sampled) for data in sets)
            correct = sets[0].correct
            error = math.nan if correct is None else float(calibration_error(share, correct, bins))
            rising = ordered(score)  # `auroc` is four times as fast if the first scores are in order
            rows += [
                TrialRow(variant, trials, error, data.name, float(auroc(rising, other)))
                for data, (_, other) in zip(sets[1:], others, strict=True)
            ] or [TrialRow(variant, trials, error, "", math.nan)]
    return rows


def _flip(data: ProbedSet, trials: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """The share of coins that each prediction wins, expected or sampled, and what ranks it like the paper's score."""
    if generator is None and trials == data.trials:
        return data.coins.dominance, data.scores["structural_score"]
    if generator is None:
        return data.coins.dominance, -log_p_value(data.coins, trials)
    wins = sample_wins(data.coins, trials, generator=generator)
    return wins / trials, -log_p_value(data.coins, trials, wins=wins)
