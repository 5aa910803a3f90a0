"""The results of an evaluation as tables. Figures, pages and files are made from nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, get_type_hints

from .._optional import require
from .tables import (
    AlarmRow,
    CalibrationRow,
    CoherenceRow,
    DetectionRow,
    GapRow,
    HistogramRow,
    LeakRow,
    OverlapRow,
    ReliabilityRow,
    RocRow,
    SampleRow,
    ScreenRow,
    StreamRow,
    ThresholdRow,
    TrialRow,
)

# The tables of the page to explore. They are large and can be computed again, so that report.json does not have them.
EXPLORED = ("samples", "alarms")


def frame(row: Any, rows: Sequence[Any]) -> Any:
    """A DataFrame of rows. Its columns are the fields of the type `row`, also if there are no rows.

    >>> list(frame(RocRow, []))
    ['ood', 'score', 'fpr', 'tpr']
    """
    return require("pandas", purpose="evaluation needs").DataFrame(rows, columns=row._fields)


@dataclass(frozen=True)
class Results:
    """The settings and the tables of an evaluation.

    Tables are pandas DataFrames, and their rows are in the order in which they are shown. The columns of a table are
    documented by the type of its rows, in `torch_boc.report.tables`.

    Attributes:
        settings: title, trials, bins, replicates, seed, classes, samples (a dict by set), accuracy (of the test set,
            NaN without targets), from_probabilities (bool), date (ISO), versions (a dict of torch_boc and torch). If
            sets were larger than `max_rows`, sampled (a dict of the number of all their rows). If they hold columns
            instead of logits, from_columns (True) and left_out (a list of words).
        calibration: a `CalibrationRow` for each calibration method and each split that it was fitted on.
        ood: a `DetectionRow` for each OOD set and score.
        leaks: a `LeakRow` for each calibration split.
        overlaps: an `OverlapRow` for each set other than the test set.
        gaps: a `GapRow` for each set.
        trials: a `TrialRow` for each variant, number of flips and OOD set.
        coherence: a `CoherenceRow` for each set and bin of confidence.
        reliability: a `ReliabilityRow` for each calibration method and bin of its confidence.
        roc: a `RocRow` for each point of the curve of each OOD set and score.
        histograms: a `HistogramRow` for each score, set and bin.
        screening: a `ScreenRow` for each test, score, level and set.
        thresholds: a `ThresholdRow` for each score, level and confidence.
        stream: a `StreamRow` for each OOD set and sample of a stream.
        samples: a `SampleRow` for some samples of each set. It may be empty.
        alarms: an `AlarmRow` for each score, set and threshold. It may be empty.
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
    screening: Annotated[Any, ScreenRow]
    thresholds: Annotated[Any, ThresholdRow]
    stream: Annotated[Any, StreamRow]
    samples: Annotated[Any, SampleRow] = field(default_factory=partial(frame, SampleRow, ()))
    alarms: Annotated[Any, AlarmRow] = field(default_factory=partial(frame, AlarmRow, ()))

    @property
    def known(self) -> str:
        """The name of the in-distribution set."""
        known = self.gaps[self.gaps["kind"] == "id"]["set"]
        return str(known.iloc[0]) if len(known) else next(iter(self.settings["samples"]), "test")


_HINTS = get_type_hints(Results, include_extras=True)
ROW_TYPES: dict[str, Any] = {x: hint.__metadata__[0] for x, hint in _HINTS.items() if hasattr(hint, "__metadata__")}


def results_of(settings: Mapping[str, Any], rows: Mapping[str, Sequence[Any]]) -> Results:
    """The results with these settings and with these rows, by the name of the table. `EXPLORED` may be missing."""
    given = {name: row for name, row in ROW_TYPES.items() if name in rows or name not in EXPLORED}
    return Results(settings, **{name: frame(row, rows[name]) for name, row in given.items()})
