"""Calibration of each method on the test set: errors with intervals, and reliability curves with bands."""

import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..calibration import Calibrator, calibrators
from ..core.tally import log_loss
from ..data.sets import LogitSet
from ..functional.evidence import gather
from ..functional.summary import error_of_bins
from ..report.tables import CalibrationRow, ReliabilityRow
from .bootstrap import bootstrap_interval, mean_interval, random_numbers, replicate, with_intervals
from .ece import bin_errors, chance_error, error_difference, error_interval
from .inputs import labelled
from .judged import Judged, JudgedTally, tally_judged
from .probing import ProbedSet, row_blocks

LABELS = ("split", "method")
Row = dict[str, Any]
Difference = tuple[float, float, float]


def calibration_tables(
    test: ProbedSet,
    splits: Mapping[str, LogitSet],
    *,
    seen: Collection[str] = (),
    methods: Collection[str],
    bins: int,
    replicates: int,
    seed: int,
    progress: Callable[[str], object],
) -> tuple[list[CalibrationRow], list[ReliabilityRow]]:
    """Rows of the tables `calibration` and `reliability`: MSP, then the fitted methods by split, then the others.

    The splits in `seen` share samples with the test set, so a method that is fitted on one of them is never the best.
    """
    if test.correct is None:
        return [], []
    table: list[Row] = []
    curves: list[ReliabilityRow] = []
    kept: list[Judged] = []
    for split, method in fitted_methods(splits, methods, progress):
        label = {"split": split, "method": method.name}
        judged = _apply(method, test)
        row, curve = judge(judged, bins, replicates, random_numbers(seed, "calibration", *label.values()))
        table.append(label | row | {"temperature": method.temperature})
        curves += [ReliabilityRow(split, method.name, **point) for point in curve]
        kept.append(judged._replace(nll=judged.nll[:0]))
    progress("calibration: differences")

    def difference(i: int, other: int, numbers: Any) -> Difference:
        return error_difference(kept[i], kept[other], bins, replicates, numbers)

    return with_differences(table, seen, difference, seed), curves


def with_differences(
    table: Sequence[Row], seen: Collection[str], difference: Callable[[int, int, Any], Difference], seed: int
) -> list[CalibrationRow]:
    """The rows with the differences of their ECE from that of MSP, which is the first row, and from the lowest ECE.

    Args:
        table: the rows.
        seen: splits that share samples with the test set. A method that was fitted on one of them is never the best.
        difference: gives the difference of two rows and its interval, from their places and random numbers.
        seed: of the random numbers.
    """
    best = min((i for i, row in enumerate(table) if row["split"] not in seen), key=lambda i: float(table[i]["ece"]))

    def between(i: int, other: int) -> Difference:
        if i == other:
            return 0.0, 0.0, 0.0
        labels = (table[place][key] for place in (i, other) for key in LABELS)
        return difference(i, other, random_numbers(seed, "difference", *labels))

    rows = []
    for i, row in enumerate(table):
        found = {"ece_versus_msp": between(i, 0)}
        found["ece_versus_best"] = found["ece_versus_msp"] if best == 0 else between(i, best)
        values = {name: value for name, (value, _, _) in found.items()}
        around = {name: (low, high) for name, (_, low, high) in found.items()}
        rows.append(CalibrationRow(**{**row, **with_intervals(values, around)}))
    return rows


def fitted_methods(
    splits: Mapping[str, LogitSet], methods: Collection[str], progress: Callable[[str], object]
) -> Iterator[tuple[str, Calibrator]]:
    """The calibrators with the names of their splits: MSP, then the fitted methods by split, then the others."""
    first, *rest = (("", method) for method in calibrators() if not method.needs_fit)
    fitted = [(split, method) for split in splits for method in calibrators() if method.name in methods]
    for split, method in [first, *fitted, *rest]:
        what = f"calibration: {method.name}" + (f" on {split}" if split else "")
        progress(what)
        method.progress = partial(_tell, progress, what)
        if not split or _fitted(method, split, splits[split]):
            yield split, method


def _tell(progress: Callable[[str], object], what: str, how_far: str) -> None:
    progress(f"{what}, {how_far}")


def judge(judged: Judged, bins: int, replicates: int, numbers: Any) -> tuple[dict[str, float], list[Row]]:
    """`judge_tally` of judged samples. The interval of the NLL is that of the samples themselves."""
    tally = tally_judged(judged, bins)
    return judge_tally(
        tally, lambda: mean_interval(judged.nll, replicates, numbers, (0.0, math.inf)), replicates, numbers
    )


def judge_tally(
    tally: JudgedTally, nll_interval: Callable[[], tuple[float, float]], replicates: int, numbers: Any
) -> tuple[dict[str, float], list[Row]]:
    """The errors with their intervals, the accuracy, and the points of the reliability curve."""
    cells, means = tally.filled()
    bins = tally.bins
    observed, drawn = replicate(lambda counts: _cell_statistics(counts, means, bins), [cells], replicates, numbers)
    values = {"ece": bin_errors(tally).total, "nll": tally.mean_nll(), "brier": tally.brier()}
    intervals = {
        "ece": error_interval(tally, drawn[:, 0]),
        "nll": nll_interval(),
        "brier": bootstrap_interval(values["brier"], observed[1], drawn[:, 1]),
    }
    row = with_intervals(values, intervals) | {"accuracy": tally.accuracy()}
    row |= dict(zip(("ece_chance", "ece_chance_most"), chance_error(tally), strict=True))
    return row, _curve(tally, drawn[:, 2:])


def _fitted(method: Calibrator, split: str, data: LogitSet) -> bool:
    """Fit the method on a split; returns whether it could be fitted. If not, a warning says that it is left out."""
    try:
        method.fit(*labelled(data))
    except ValueError as error:
        warnings.warn(f"calibration split {split!r}: {error}; {method.name} is left out", stacklevel=5)
        return False
    return True


def _apply(method: Calibrator, test: ProbedSet) -> Judged:
    """Apply the method to the test set, block by block. If it gives no logits, the loss is that of the raw logits."""
    assert test.nll is not None
    parts, start = [], 0
    for logits, target in row_blocks(test.data):
        assert target is not None
        result = method.calibrate(logits)
        nll = test.nll[start : start + len(logits)]
        if result.logits is not None:
            evidence = gather(result.logits, target)
            assert evidence.distance is not None
            nll = log_loss(evidence.coins.odds, evidence.distance)
        parts.append(Judged(result.confidence.double(), result.prediction == target, nll))
        start += len(logits)
    return Judged(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _cell_statistics(counts: Tensor, means: Tensor, bins: int) -> Tensor:
    """From counts (R, cells), the calibration error, the Brier score and the accuracy of each bin: (R, 2 + bins)."""
    bin_of, right, confidence, brier = means
    member = (bin_of.unsqueeze(1) == torch.arange(bins)).double()
    total = counts[0].sum()
    inside, hits = counts @ member, counts @ (member * right.unsqueeze(1))
    error = error_of_bins(hits - counts @ (member * confidence.unsqueeze(1)), total)
    return torch.cat([error.unsqueeze(1), (counts @ brier / total).unsqueeze(1), hits / inside], 1)


def _curve(tally: JudgedTally, accuracies: Tensor) -> list[Row]:
    """A row for each bin. `accuracies` (R, bins) are replicates; one is NaN if it drew no sample of the bin."""
    sums, bins = tally.in_bins(), tally.bins
    confidence, accuracy = torch.stack([sums.confidence, sums.hits]) / sums.samples
    rows = []
    for i in range(bins):
        low, high = bootstrap_interval(float(accuracy[i]), accuracy[i], accuracies[:, i])
        row = {"bin_low": i / bins, "bin_high": (i + 1) / bins, "samples": int(sums.samples[i])}
        row |= {"confidence": float(confidence[i]), "accuracy": float(accuracy[i])}
        rows.append(row | {"accuracy_low": low, "accuracy_high": high})
    return rows
