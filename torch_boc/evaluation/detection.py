"""Out-of-distribution detection: how well every score separates the test set from every OOD set."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from ..data.atomic import printable
from ..data.sets import LogitSet
from ..functional.registry import scores
from ..report.tables import DetectionRow, HistogramRow, RocRow
from .bootstrap import random_numbers, with_intervals
from .curves import histogram_rows, roc_curve
from .detectors import detector_scores, mahalanobis_scores
from .exact import binomial_interval
from .probing import ProbedSet
from .separation import STATISTICS, Ranked, Separation, paired_difference, rank_scores, separate, separation_intervals

MAHALANOBIS = "mahalanobis"
# After a softmax these scores are the same for every sample, but for rounding.
LOST = ("energy",)
AnyRow = TypeVar("AnyRow")


class ScoredSets(NamedTuple):
    """One score for all sets that have it, higher = more in-distribution. The test set comes first."""

    name: str
    kind: str
    sets: dict[str, Tensor]


def collect_scores(
    sets: Sequence[ProbedSet], train: LogitSet | None = None, detectors: Mapping[str, Any] | None = None
) -> list[ScoredSets]:
    """The scores to compare: those of the registry, Mahalanobis if there is training data, detectors, and columns."""
    if detectors is not None and not isinstance(detectors, Mapping):
        raise TypeError(f"expected detectors as a mapping from names to callables, got {type(detectors).__name__}")
    detectors = {printable(k) if isinstance(k, str) else k: x for k, x in (detectors or {}).items()}
    _check_names(sets, train, detectors)
    lost = LOST if sets[0].data.from_probabilities else ()
    found = [ScoredSets(name, "score", {x.name: x.scores[name] for x in sets}) for name in scores if name not in lost]
    if train is not None:
        distances = mahalanobis_scores(train, *(x.data.logits for x in sets))
        found.append(_scored(MAHALANOBIS, "detector", sets, distances))
    for name, detector in detectors.items():
        found.append(_scored(name, "detector", sets, [_detect(name, detector, x.data.logits) for x in sets]))
    return found + _columns(sets)


def detection_tables(
    found: Sequence[ScoredSets], id_name: str, *, replicates: int, seed: int, progress: Callable[[str], object]
) -> tuple[list[DetectionRow], list[RocRow], list[HistogramRow]]:
    """Rows of the tables `ood`, `roc` and `histograms`, ordered by set and then by score."""
    table: dict[str, list[DetectionRow]] = {}
    curves: dict[str, list[RocRow]] = {}
    histograms: list[HistogramRow] = []
    baseline: dict[str, Separation] = {}
    for score in found:
        progress(f"score {score.name}")
        ranked = {name: rank_scores(values) for name, values in score.sets.items()}
        histograms += _histogram(score.name, ranked)
        for name in [name for name in ranked if name != id_name]:
            pair = ranked[id_name], ranked[name]
            result = separate(*pair)
            baseline.setdefault(name, result)  # the first score is the baseline
            numbers = random_numbers(seed, "separation", name, score.name)
            intervals = separation_intervals(result, *pair, replicates, numbers)
            table.setdefault(name, []).append(_row(name, score, result, intervals, baseline[name]))
            curves.setdefault(name, []).extend(_curve(name, score.name, pair))
    return _chain(table), _chain(curves), histograms


def auroc_difference(one: Separation, other: Separation) -> tuple[float, float, float]:
    """AUROC of `one` minus that of `other` on the same samples, with a paired 95 % interval."""
    if one is not other and one.auroc == other.auroc in (0.0, 1.0):
        # No sample is on the wrong side for either. This does not show that both are equally good.
        reach = binomial_interval(0, min(len(one.id_placement), len(one.ood_placement)))[1]
        return 0.0, -reach, reach
    return paired_difference(one, other)


def _row(
    ood: str, score: ScoredSets, result: Separation, intervals: Mapping[str, tuple[float, float]], baseline: Separation
) -> DetectionRow:
    difference, *margins = auroc_difference(result, baseline)
    values = {name: getattr(result, name) for name in STATISTICS} | {"versus_msp": difference}
    upside_down = score.kind == "score" and scores[score.name].upside_down
    measured = with_intervals(values, {**intervals, "versus_msp": (margins[0], margins[1])})
    return DetectionRow(ood=ood, score=score.name, kind=score.kind, upside_down=upside_down, **measured)


def _curve(ood: str, score: str, pair: tuple[Ranked, Ranked]) -> list[RocRow]:
    points = zip(*(axis.tolist() for axis in roc_curve(pair[0].values, pair[1].values)), strict=True)
    return [RocRow(ood, score, fpr, tpr) for fpr, tpr in points]


def _histogram(score: str, ranked: Mapping[str, Ranked]) -> list[HistogramRow]:
    """The histogram of a score. For the score `gap`, which is minus the gap, it is that of the gap itself."""
    turned = score == "gap"
    return histogram_rows(score, {name: -x.values.flip(0) if turned else x.values for name, x in ranked.items()})


def _scored(name: str, kind: str, sets: Sequence[ProbedSet], values: Sequence[Tensor]) -> ScoredSets:
    return ScoredSets(name, kind, {x.name: value for x, value in zip(sets, values, strict=True)})


def _detect(name: str, detector: Any, logits: Tensor) -> Tensor:
    """The scores of a user's detector. If it raises an error, a note says which detector it was."""
    try:
        return detector_scores(detector, logits, name)
    except Exception as error:
        error.add_note(f"in detector {name!r}, on logits of shape {tuple(logits.shape)}")
        raise


def _columns(sets: Sequence[ProbedSet]) -> list[ScoredSets]:
    """The columns that the test set and other sets have. A warning names the columns that one of them does not have."""
    test, *others = sets
    for other in others:
        here, there = set(test.data.columns), set(other.data.columns)
        for name in [*test.data.columns, *other.data.columns]:
            if name in here ^ there:
                owner, lacking = (test, other) if name in here else (other, test)
                message = f"column {name!r} of {owner.name!r} is left out: {lacking.name!r} has no column of that name"
                warnings.warn(message, UserWarning, stacklevel=2)
    return [
        ScoredSets(name, "column", {x.name: x.data.columns[name].double() for x in sets if name in x.data.columns})
        for name in test.data.columns
    ]


def _check_names(sets: Sequence[ProbedSet], train: LogitSet | None, detectors: Mapping[str, Any]) -> None:
    taken = dict.fromkeys(scores, "score") | ({} if train is None else {MAHALANOBIS: "detector"})
    for name in detectors:
        if not isinstance(name, str) or not name:
            raise ValueError(f"expected names of detectors as strings, got {name!r}")
        if name in taken:
            raise ValueError(
                f"expected a new name for a detector, got {name!r}, which is the name of a {taken[name]}; rename it"
            )
    taken |= dict.fromkeys(detectors, "detector")
    for data in sets:
        for name in data.data.columns:
            if name in taken:
                raise ValueError(
                    f"{data.name}: expected columns under new names, got {name!r}, which is the name of a "
                    f"{taken[name]}; rename the column or leave it out"
                )


def _chain(groups: Mapping[str, list[AnyRow]]) -> list[AnyRow]:
    return [row for rows in groups.values() for row in rows]
