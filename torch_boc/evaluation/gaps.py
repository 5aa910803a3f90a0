"""The coherence gap of each set, with its forced and its free part, and the effect of the number of trials."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.tally import equal_bin
from ..functional.bounds import forced_gap, free_gap
from ..functional.histogram import count
from ..functional.separation import auroc
from ..functional.summary import calibration_error
from ..functional.trials import log_p_value, sample_wins
from .samples import ProbedSet, ordered

ALPHA = 0.05
VARIANTS = ("deterministic", "Monte Carlo")
HISTOGRAM_BINS = 50


def gap_rows(sets: Sequence[ProbedSet]) -> list[dict[str, Any]]:
    """The means over each set. The test set is first."""
    rows: list[dict[str, Any]] = []
    for data in sets:
        coins, classes = data.coins, data.data.num_classes
        forced, p_value = forced_gap(coins.odds, classes), data.scores["log_p_value"].exp()
        columns = {
            "confidence": coins.confidence,
            "dominance": coins.dominance,
            "gap": coins.gap,
            "forced_gap": forced,
            "free_gap": free_gap(coins.odds, coins.concentration, classes),
            "concentration": coins.concentration,
            "rejection_rate": (p_value <= ALPHA).double(),
            "p_value": p_value,
        }
        row: dict[str, Any] = dict(zip(columns, torch.stack([*columns.values()]).mean(1).tolist(), strict=True))
        row |= {"set": data.name, "kind": "ood" if rows else "id", "samples": len(data.data)}
        row["r2"] = explained_share(coins.gap, forced)
        rows.append(row)
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


def coherence_rows(sets: Sequence[ProbedSet], bins: int) -> tuple[list[Any], list[Any]]:
    """The mean gap of each set in equal bins of confidence, NaN without samples; and the share of each set in bins of
    the gap, which are the same for every set.
    """
    rows, histograms = [], []
    highest = max(1e-12, *[float(data.coins.gap.max()) for data in sets])
    for data in sets:
        confidence, gap = data.coins.confidence, data.coins.gap
        place, columns = equal_bin(confidence, bins), [torch.ones_like(confidence), confidence, gap]
        columns.append(forced_gap(data.coins.odds, data.data.num_classes))
        samples, *sums = count(place.expand(4, -1), torch.stack(columns), bins)
        means = zip(samples.long().tolist(), *(torch.stack(sums) / samples).tolist(), strict=True)
        rows += [(data.name, i / bins, (i + 1) / bins, *values) for i, values in enumerate(means)]
        shares = torch.histc(gap.double(), HISTOGRAM_BINS, 0.0, highest) / len(gap)
        step = highest / HISTOGRAM_BINS
        histograms += [(data.name, i * step, (i + 1) * step, share) for i, share in enumerate(shares.tolist())]
    return rows, histograms


def trial_rows(
    sets: Sequence[ProbedSet], trial_counts: Sequence[int], *, bins: int, seed: int, progress: Callable[[str], object]
) -> list[Any]:
    """The calibration error of the dominance and the AUROC of the paper's score, for each number of trials.

    In the deterministic variant the confidence is the dominance itself, and the score uses the expected wins. In the
    Monte Carlo variant both are computed from sampled wins.
    """
    generator = torch.Generator().manual_seed(seed)
    rows: list[Any] = []
    for variant in VARIANTS:
        for trials in trial_counts:
            progress(f"{variant}, {trials} trials")
            error, rising = math.nan, torch.empty(0)
            for place, data in enumerate(sets):
                wins = sample_wins(data.coins, trials, generator=generator) if variant == VARIANTS[1] else None
                # It ranks as the paper's score does, and has no ties by rounding.
                score = -log_p_value(data.coins, trials, wins=wins)
                if place:
                    rows.append((variant, trials, error, data.name, float(auroc(rising, score))))
                    continue
                rising = ordered(score)  # `auroc` is four times as fast if the first scores are in order
                share = data.coins.dominance if wins is None else wins / trials
                if data.correct is not None:
                    error = float(calibration_error(share, data.correct, bins))
            rows += [(variant, trials, error, "", math.nan)] if len(sets) == 1 else []
    return rows
