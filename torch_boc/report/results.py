"""What an evaluation finds, as tables and curves: the one thing that tests, figures, pages and files are made from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SPLINE = "confidence_spline"


@dataclass(frozen=True)
class Results:
    """Tables are pandas DataFrames in the order in which they are shown; shares and scores are floats, not percentages.

    An interval of 95 % for a column `x` is in `x_low` and `x_high`; NaN is a value that there is none of.

    Attributes:
        settings: title, trials, bins, replicates, seed, classes, samples (a dict by set), accuracy (of the test set,
            NaN without targets), from_probabilities (bool), date (ISO), versions (a dict of torch_boc and torch).
        calibration: `split`, `method` (MSP, temperature, isotonic, vector scaling, BoC), `ece`, `nll`, `brier` with
            intervals, `ece_chance` (what chance alone makes of perfectly calibrated confidences) and `ece_chance_most`
            (what it stays below in 95 % of cases), `ece_versus_msp` and `ece_versus_best` (the differences from the ECE
            of MSP and from the lowest, with intervals from the same resamples), `accuracy`, `temperature`. The interval
            of `ece` is that of the error of the same bins with infinitely many samples; chance adds to the estimate,
            so it reaches further down than up, and begins at 0 where the method may be perfect. MSP and BoC need no
            split and have "".
        ood: `ood` (the set), `score`, `auroc`, `fpr95`, `aupr` with intervals, `versus_msp` (the difference of the
            AUROC from that of msp, with a paired interval), `kind` ("score", "detector", "column"), `upside_down`
            (bool).
        leaks: `split`, `samples`, `accuracy`, `test_accuracy`, `z`, `p_value`, `suspicious` (bool).
        overlaps: rows that the test set shares with each other set: `set`, `kind` ("calibration", "ood", "train"),
            `samples`, `shared` (rows of the test set that are also in it), `exact` (those that are equal to the last
            digit of float32), `share` (of the test set), `suspicious` (bool: more than chance makes).
        gaps: one row a set: `set`, `kind` ("id" or "ood"), `samples`, `confidence`, `dominance`, `gap`, `forced_gap`,
            `free_gap`, `concentration`, `r2` (of the gap on its forced part), `rejection_rate`, `p_value`.
        trials: `variant` ("deterministic" or "Monte Carlo"), `trials`, `ece` (NaN without targets), and for each OOD
            set a row with `ood` and `auroc` (of the paper's score). Without OOD sets `ood` is "" and `auroc` NaN.
        coherence: mean gap by confidence: `set`, `bin_low`, `bin_high`, `samples`, `confidence`, `gap`, `forced_gap`.
        reliability: `split`, `method`, `bin_low`, `bin_high`, `samples`, `confidence`, `accuracy` with interval.
        roc: `ood`, `score`, `fpr`, `tpr`: at most some 500 points a curve.
        histograms: `score` (`gap` stands for the coherence gap itself, not its negative), `set`, `bin_low`, `bin_high`,
            `share`: the same bins for every set of a score.
    """

    settings: Mapping[str, Any]
    calibration: Any
    ood: Any
    leaks: Any
    overlaps: Any
    gaps: Any
    trials: Any
    coherence: Any
    reliability: Any
    roc: Any
    histograms: Any

    @property
    def known(self) -> str:
        """The name of the in-distribution set."""
        known = self.gaps[self.gaps["kind"] == "id"]["set"]
        return str(known.iloc[0]) if len(known) else next(iter(self.settings["samples"]), "test")
