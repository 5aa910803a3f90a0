"""What an evaluation finds, as tables and curves: the one thing that tests, figures, pages and files are made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from .._optional import require
from .tables import (
    CalibrationRow,
    CoherenceRow,
    DetectionRow,
    GapRow,
    HistogramRow,
    LeakRow,
    OverlapRow,
    ReliabilityRow,
    RocRow,
    TrialRow,
)

SPLINE = "confidence_spline"


@dataclass(frozen=True)
class Results:
    """Tables are pandas DataFrames in the order in which they are shown. Each has the
    columns that its row type in `tables` documents.

    Attributes:
        settings: title, trials, bins, replicates, seed, classes, samples (a dict by set), accuracy (of the test set,
            NaN without targets), from_probabilities (bool), date (ISO), versions (a dict of torch_boc and torch).
        calibration: errors of each calibration method, a `CalibrationRow` for each split it was fitted on.
        ood: each score against each OOD set, a `DetectionRow`.
        leaks: each calibration split, a `LeakRow`.
        overlaps: each other set, an `OverlapRow`.
        gaps: each set, a `GapRow`.
        trials: each variant and number of flips, a `TrialRow` for each OOD set.
        coherence: each set and bin of confidence, a `CoherenceRow`.
        reliability: each calibration method and bin of its confidence, a `ReliabilityRow`.
        roc: points of the curves of each score and OOD set, a `RocRow`.
        histograms: each score, set and bin, a `HistogramRow`.
    """

    settings: Mapping[str, Any]
    calibration: Annotated[Any, CalibrationRow]
    ood: Annotated[Any, DetectionRow]
    leaks: Annotated[Any, LeakRow]
    overlaps: Annotated[Any, OverlapRow]
    gaps: Annotated[Any, GapRow]
    trials: Annotated[Any, TrialRow]
    coherence: Annotated[Any, CoherenceRow]
    reliability: Annotated[Any, ReliabilityRow]
    roc: Annotated[Any, RocRow]
    histograms: Annotated[Any, HistogramRow]

    @property
    def known(self) -> str:
        """The name of the in-distribution set."""
        known = self.gaps[self.gaps["kind"] == "id"]["set"]
        return str(known.iloc[0]) if len(known) else next(iter(self.settings["samples"]), "test")


_HINTS = get_type_hints(Results, include_extras=True)
ROW_TYPES: dict[str, Any] = {x: hint.__metadata__[0] for x, hint in _HINTS.items() if hasattr(hint, "__metadata__")}


def frame(row: Any, rows: Sequence[Any]) -> Any:
    """A DataFrame of rows, whose columns are the fields of their type also where there are none.

    >>> list(frame(RocRow, []))
    ['ood', 'score', 'fpr', 'tpr']
    """
    return require("pandas", purpose="evaluation needs").DataFrame(rows, columns=row._fields)


def results_of(settings: Mapping[str, Any], rows: Mapping[str, Sequence[Any]]) -> Results:
    """The results with these rows, by the name of the table."""
    return Results(settings, **{name: frame(row, rows[name]) for name, row in ROW_TYPES.items()})
