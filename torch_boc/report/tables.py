"""The results of an evaluation as tables. Figures, pages and files are made from nothing else.

The fields of the type of a row are the columns of its table.
Shares and scores are fractions, not percentages. The ends of the 95 % interval of a column `x` are in `x_low` and
`x_high`. NaN means that there is no value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, NamedTuple, get_type_hints

from .._optional import require

# The tables of the page to explore. They are large and can be computed again, so that report.json does not have them.
EXPLORED = ("samples", "alarms")


class CalibrationRow(NamedTuple):
    """The errors of one method that was fitted on one split.

    `ece`, `nll` and `brier` have intervals. The interval of `ece` is for the true error, which the same bins would have
    with infinitely many samples. Chance adds to the estimate, so the interval reaches further down than up. It begins
    at 0 if the method may be perfectly calibrated. `ece_chance` is the mean error that perfectly calibrated confidences
    have by chance, and `ece_chance_most` is the error that they stay below in 95 % of cases. `ece_versus_msp` and
    `ece_versus_best` are the differences from the ECE of MSP and from the lowest ECE. Their intervals compare both
    methods on the same resamples.
    """

    split: str  # "" for a method that needs no split
    method: str  # `Calibrator.name`
    ece: float
    ece_low: float
    ece_high: float
    nll: float
    nll_low: float
    nll_high: float
    brier: float
    brier_low: float
    brier_high: float
    ece_chance: float
    ece_chance_most: float
    ece_versus_msp: float
    ece_versus_msp_low: float
    ece_versus_msp_high: float
    ece_versus_best: float
    ece_versus_best_low: float
    ece_versus_best_high: float
    accuracy: float
    temperature: float  # NaN for a method without a temperature


class DetectionRow(NamedTuple):
    """How well one score separates the test set from one OOD set.

    `versus_msp` is the difference from the AUROC of msp, with a paired interval.
    """

    ood: str
    score: str
    auroc: float
    auroc_low: float
    auroc_high: float
    fpr95: float
    fpr95_low: float
    fpr95_high: float
    aupr: float
    aupr_low: float
    aupr_high: float
    versus_msp: float
    versus_msp_low: float
    versus_msp_high: float
    kind: str  # "score", "detector" or "column"
    upside_down: bool


class LeakRow(NamedTuple):
    """Whether a calibration split is easier than the test set; see `LeakTest`."""

    split: str
    samples: int
    accuracy: float
    test_accuracy: float
    z: float
    p_value: float
    suspicious: bool


class OverlapRow(NamedTuple):
    """How many rows of the test set are also in another set."""

    set: str
    kind: str  # "calibration", "ood" or "train"
    samples: int
    shared: int  # rows of the test set that are also in the other set
    exact: int  # shared rows that are equal in every digit of float32
    share: float  # the shared part of the test set
    suspicious: bool  # whether more rows are shared than chance explains


class GapRow(NamedTuple):
    """Means over one set. `r2` is the part of the variance of the gap that the forced gap explains."""

    set: str
    kind: str  # "id" or "ood"
    samples: int
    confidence: float
    dominance: float
    gap: float
    forced_gap: float
    free_gap: float
    concentration: float
    r2: float
    rejection_rate: float
    p_value: float


class TrialRow(NamedTuple):
    """The ECE of BoC and the AUROC of the paper's score for one number of flips. `ood` is "" if there is no OOD set."""

    variant: str  # "deterministic" or "Monte Carlo"
    trials: int
    ece: float  # NaN without targets
    ood: str
    auroc: float


class CoherenceRow(NamedTuple):
    """Means over the samples of one set in one bin of confidence."""

    set: str
    bin_low: float
    bin_high: float
    samples: int
    confidence: float
    gap: float
    forced_gap: float


class ReliabilityRow(NamedTuple):
    """The accuracy of one method in one bin of its confidence."""

    split: str
    method: str
    bin_low: float
    bin_high: float
    samples: int
    confidence: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float


class RocRow(NamedTuple):
    """A point of a ROC curve. A curve has at most about 500 points."""

    ood: str
    score: str
    fpr: float
    tpr: float


class HistogramRow(NamedTuple):
    """The share of the samples of one set in one bin of a score. The bins are the same for every set.

    For `gap` the bins are those of the coherence gap itself, not of its negative.
    """

    score: str
    set: str
    bin_low: float
    bin_high: float
    share: float


class ScreenRow(NamedTuple):
    """How many samples of one set a test flags at one level.

    `flagged` has the interval of Clopper and Pearson, which is about these held-out samples. It is NaN if there are too
    few held-out samples to flag any at this level.
    """

    test: str  # "conformal", or "paper" for the paper's test
    score: str  # what the conformal test compares; "" for the paper's test
    alpha: float  # the level
    held_out: str  # the split that the test is calibrated on; "" for a random half of the test set
    held_out_samples: int
    set: str
    kind: str  # "id" or "ood"
    samples: int
    flagged: float
    flagged_low: float
    flagged_high: float
    chance: float  # of so many flagged samples or more, if they are like the held-out ones; NaN except for "id"


class ThresholdRow(NamedTuple):
    """The score below which the conformal test flags a sample.

    `rate` is the expected share of flagged in-distribution samples. Its interval of 95 % is over sets of held-out
    samples.
    """

    score: str
    alpha: float
    confidence: float  # the chance that the share is at most alpha; NaN if only its mean is
    held_out_samples: int
    threshold: float  # NaN if there are too few held-out samples
    rate: float
    rate_low: float
    rate_high: float


class StreamRow(NamedTuple):
    """The evidence of a monitor after one sample of a stream that turns from the test set to an OOD set."""

    ood: str
    score: str
    alpha: float  # the chance of a false alarm; the alarm is at an evidence of log(1 / alpha)
    sample: int  # from 1 on
    kind: str  # "id" or "ood", the set that the sample is from
    evidence: float


class SampleRow(NamedTuple):
    """One sample of the test set or of an OOD set; see `evaluation.samples` for which samples there are."""

    set: str
    kind: str  # "id" or "ood"
    row: int  # the place in its set, from 0 on
    suspicious: bool  # whether it is one of the most suspicious of its set, and not of the random rest
    prediction: int
    target: int  # -1 if it is not known
    confidence: float
    gap: float
    concentration: float
    log_odds: float
    p_value: float  # conformal, of the log-odds; NaN for a sample that the test was calibrated on


class AlarmRow(NamedTuple):
    """The share of one set that scores below one threshold. The thresholds are scores of the test set."""

    score: str
    set: str
    threshold: float
    flagged: float


class DifferenceRow(NamedTuple):
    """A number of one model minus that of another on the same samples, with a paired interval."""

    model: str
    than: str  # the other model
    what: str  # "accuracy" or "ECE", or a score whose AUROC is compared
    ood: str  # "" for accuracy and ECE
    difference: float
    difference_low: float
    difference_high: float


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
