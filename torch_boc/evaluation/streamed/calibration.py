"""The tables of calibration, from the sums over a set."""

import math
from collections.abc import Collection
from typing import Any

import torch

from ...report.claims import NORMAL_QUANTILE
from ...report.tables import CalibrationRow, ReliabilityRow
from ..bootstrap import random_numbers
from ..ece import tallied_difference
from ..judged import JointTally, JudgedTally
from ..reliability import Difference, judge_tally, with_differences
from .state import SetState


def calibration_rows(
    state: SetState, *, seen: Collection[str] = (), replicates: int, seed: int
) -> tuple[list[CalibrationRow], list[ReliabilityRow]]:
    """Rows of the tables `calibration` and `reliability`; none without targets."""
    table: list[dict[str, Any]] = []
    curves: list[ReliabilityRow] = []
    for (split, method), tally in zip(state.plan.methods, state.judged, strict=False):
        numbers = random_numbers(seed, "calibration", split, method.name)
        row, curve = judge_tally(tally, lambda tally=tally: nll_interval(tally), replicates, numbers)  # type: ignore[misc]
        table.append({"split": split, "method": method.name} | row | {"temperature": method.temperature})
        curves += [ReliabilityRow(split, method.name, **point) for point in curve]

    def difference(i: int, other: int, numbers: Any) -> Difference:
        pair = state.judged[i], state.judged[other]
        return tallied_difference(*pair, both_of(state, i, other), replicates, numbers)

    return (with_differences(table, seen, difference, seed) if table else []), curves


def nll_interval(tally: JudgedTally) -> tuple[float, float]:
    """The 95 % interval of the mean loss: normal, with the variance of the samples."""
    mean, n = tally.mean_nll(), tally.samples
    variance = float(tally.nll[1]) / n - mean**2
    if not (math.isfinite(mean) and n > 1):
        return math.nan, math.nan
    margin = NORMAL_QUANTILE * math.sqrt(max(variance, 0.0) / (n - 1))
    return max(0.0, mean - margin), mean + margin


def both_of(state: SetState, i: int, other: int) -> JointTally:
    """The sums of two calibrators, which the state has in one order."""
    if (i, other) in state.both:
        return state.both[i, other]
    cells, bins = state.both[other, i]
    turned = cells.view(3, bins, bins, 2, 2).permute(0, 2, 1, 4, 3).reshape(3, -1)
    return JointTally(turned[torch.tensor([0, 2, 1])], bins)
