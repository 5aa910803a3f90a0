"""The rows of a report's tables: their fields are the columns.

Shares and scores are floats, not percentages. An interval of 95 % for a column `x` is in `x_low` and `x_high`; NaN is a
value that there is none of.
"""

from typing import NamedTuple


class CalibrationRow(NamedTuple):
    """The errors of one method, fitted on one split.

    `ece`, `nll` and `brier` have intervals. That of `ece` is the interval of the error of the same bins with infinitely
    many samples; chance adds to the estimate, so it reaches further down than up, and begins at 0 where the method may
    be perfect. `ece_chance` is what chance alone makes of perfectly calibrated confidences, and `ece_chance_most` what
    it stays below in 95 % of cases. `ece_versus_msp` and `ece_versus_best` are the differences from the ECE of MSP and
    from the lowest, with intervals from the same resamples.
    """

    split: str  # "" for a method that needs none
    method: str  # as `Calibrator.name` has it
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
    temperature: float  # NaN for a method that has none


class DetectionRow(NamedTuple):
    """How well one score separates the test set from one OOD set.

    `versus_msp` is the difference of the AUROC from that of msp, with a paired interval.
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
    """Rows that the test set shares with another set."""

    set: str
    kind: str  # "calibration", "ood" or "train"
    samples: int
    shared: int  # rows of the test set that are also in it
    exact: int  # those of them that are equal to the last digit of float32
    share: float  # of the test set
    suspicious: bool  # more than chance makes


class GapRow(NamedTuple):
    """Means over one set; `r2` is the share of the gap's variance that its forced part explains."""

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
    """What one number of flips gives: `auroc` is that of the paper's score. Without OOD sets `ood` is ""."""

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
    """A point of a ROC curve: at most some 500 a curve."""

    ood: str
    score: str
    fpr: float
    tpr: float


class HistogramRow(NamedTuple):
    """The share of one set in one bin of a score; the bins are the same for every set.

    `gap` stands for the coherence gap itself, not its negative.
    """

    score: str
    set: str
    bin_low: float
    bin_high: float
    share: float


class BeyondRow(NamedTuple):
    """How well a quantity separates two sets: alone, at equal confidence, or in a model; see `beyond_confidence`."""

    how: str
    what: str
    auroc: float
    auroc_low: float
    auroc_high: float
    versus_confidence: float
    versus_confidence_low: float
    versus_confidence_high: float
    pairs: int
