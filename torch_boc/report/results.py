"""The results of an evaluation as tables. Figures, pages and files are made from nothing else.

Shares and scores are fractions, not percentages. The ends of the 95 % interval of a column `x` are in `x_low` and
`x_high`. NaN means that there is no value, and "" that there is no name.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from .._optional import require

# The columns of a report that hold names; all others hold numbers.
NAMES = ("split", "method", "ood", "score", "set", "kind", "variant", "test", "held_out", "name")


def frame(table: str, rows: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
    """A DataFrame with the columns of a table, also if there are no rows.

    >>> list(frame("differences"))
    ['model', 'than', 'what', 'ood', 'difference', 'difference_low', 'difference_high']
    """
    columns = re.sub(r"(\w+)±", r"\1 \1_low \1_high", COLUMNS[table]).split()
    return require("pandas", purpose="evaluation needs").DataFrame(rows, columns=columns)


def where(table: Any, **values: Any) -> Any:
    """The rows of a DataFrame in which each of these columns has the given value.

    >>> where(frame("roc", [("a", "msp", 0.0, 0.5), ("b", "msp", 0.0, 0.6)]), ood="b")["tpr"].tolist()
    [0.6]
    """
    for column, value in values.items():
        table = table[table[column] == value]
    return table


@dataclass(frozen=True)
class Results:
    """The settings and the tables of an evaluation.

    Tables are pandas DataFrames, and their rows are in the order in which they are shown. The annotation of a table
    names its columns; one with ± has an interval.

    Attributes:
        settings: title, trials, bins, replicates, seed, classes, class_names (a list, or None), samples (a dict by
            set), violations (what refutes the guarantees on the test set: a list of "error", "flagged" and "drift"),
            accuracy (of the test set, NaN without targets), shifted_accuracy (if all targets were lower by one),
            from_probabilities (bool), date (ISO), versions (a dict of torch_boc and torch). If sets were larger than
            `max_rows`, sampled (a dict of the number of all their rows). If they hold columns instead of logits,
            from_columns (True) and left_out (a list of words).
        calibration: the errors of each calibration method and each split that it was fitted on, "" for none. The
            interval of `ece` is for the true error, which the same bins would have with infinitely many samples. Chance
            adds to the estimate, so the interval reaches further down than up, and begins at 0 if the method may be
            perfectly calibrated. `ece_chance` is the mean error that perfectly calibrated confidences have by chance,
            and `ece_chance_most` what they stay below in 95 % of cases. `ece_versus_msp` and `ece_versus_best` are the
            differences from MSP and from the lowest, on the same resamples. `temperature` is NaN without one.
        ood: how well each score separates the test set from each OOD set. `versus_msp` is the difference from the
            AUROC of msp, with a paired interval; `kind` is "score", "detector" or "column".
        leaks: for each calibration split, whether it is easier or harder than the test set; see `LeakTest`.
        overlaps: for each set other than the test set, how many rows of the test set are in it (`shared`), also in
            every digit of float32 (`exact`), and whether that is more than chance explains (`suspicious`). `kind` is
            "calibration", "ood" or "train".
        gaps: means over each set. `kind` is "id" or "ood", here and below. `r2` is the part of the variance of the gap
            that the forced gap explains.
        trials: the ECE of BoC and the AUROC of the paper's score for each variant ("deterministic", "Monte Carlo"),
            number of flips and OOD set.
        coherence: means over each set and bin of confidence.
        reliability: the accuracy of each calibration method in each bin of its confidence.
        roc: the points of the ROC curve of each OOD set and score, at most about 500 for each.
        histograms: the share of each set in bins of the coherence gap.
        screening: the share of each set that each test ("conformal" of a score, or "paper") flags at each level, with
            the interval of Clopper and Pearson; NaN if there are too few held-out samples. `held_out` is the split that
            the test is calibrated on, "" for a random half of the test set. `chance` is the chance of so many or more
            flagged samples of the set, if they are like the held-out ones.
        thresholds: the score below which the conformal test flags a sample. `confidence` is the chance that the rate
            of false alarms is at most alpha, NaN if only its mean is; `rate` is its mean.
        stream: the evidence of a monitor after each sample of a stream that turns from the test set to an OOD set.
            The alarm is at an evidence of log(1 / alpha).
        delays: of many such streams, the median detection delay in samples and the delay of 90 % of them, inf without
            an alarm; how many had an alarm before the first OOD sample (`early`), and how many had none (`missed`).
        acceptance: the coverage at a selective risk of at most `error`, with the probability `confidence` over the draw
            of the held-out set: predictions whose log odds are at least `threshold` are accepted, inf if none can be.
            `needed` is the least number of held-out samples with which any can be. `wrong` is the selective risk on the
            test set, NaN if nothing is accepted; intervals are those of Clopper and Pearson. Without targets there are
            no rows.
        review: what a person finds who sees this share of the test set, the least sure first: those whose confidence
            is below `threshold`. `caught` is the share of all errors for the test set, and the share of the samples for
            an OOD set; `right` is the accuracy of what is left of the test set.
        classes: for each predicted class, the share that is right, and the mean confidence, plain and calibrated by
            vector scaling on the first split that is to be trusted (NaN without one).
        confusions: the most frequent errors.
        samples: the least sure samples of each set. `row` is the place in its set, from 0 on, `name` its file name or
            id, `target` is -1 if it is not known, and the conformal `p_value` is NaN for samples that the test was
            calibrated on.
    """

    settings: Mapping[str, Any]
    calibration: Annotated[
        Any,
        "split method ece± nll± brier± ece_chance ece_chance_most ece_versus_msp± ece_versus_best± accuracy "
        "temperature",
    ]
    ood: Annotated[Any, "ood score auroc± fpr95± aupr± versus_msp± kind upside_down"]
    leaks: Annotated[Any, "split samples accuracy test_accuracy p_value suspicious"]
    overlaps: Annotated[Any, "set kind samples shared exact share suspicious"]
    gaps: Annotated[
        Any, "set kind samples confidence dominance gap forced_gap free_gap concentration r2 rejection_rate p_value"
    ]
    trials: Annotated[Any, "variant trials ece ood auroc"]
    coherence: Annotated[Any, "set bin_low bin_high samples confidence gap forced_gap"]
    reliability: Annotated[Any, "split method bin_low bin_high samples confidence accuracy±"]
    roc: Annotated[Any, "ood score fpr tpr"]
    histograms: Annotated[Any, "set bin_low bin_high share"]
    screening: Annotated[Any, "test score alpha held_out held_out_samples set kind samples flagged± chance"]
    thresholds: Annotated[Any, "score alpha confidence held_out_samples threshold rate±"]
    stream: Annotated[Any, "ood score alpha sample kind evidence"]
    delays: Annotated[Any, "ood score alpha streams early missed delay delay_most"]
    acceptance: Annotated[Any, "error confidence held_out held_out_samples needed threshold samples accepted± wrong±"]
    review: Annotated[Any, "set kind share threshold caught right"]
    classes: Annotated[Any, "prediction samples right confidence calibrated excess±"]
    confusions: Annotated[Any, "target prediction samples"]
    samples: Annotated[Any, "set kind row name prediction target confidence gap log_odds p_value"]

    @property
    def known(self) -> str:
        """The name of the in-distribution set."""
        return str(next(iter(self.settings["samples"]), "test"))

    def class_name(self, index: int) -> str:
        """The name of a class, or its number."""
        names = self.settings.get("class_names")
        return "–" if index < 0 else str(names[index]) if names else f"class {index}"


TABLES = {name: kind.__metadata__[0] for name, kind in Results.__annotations__.items() if name != "settings"}
COLUMNS = TABLES | {"differences": "model than what ood difference±"}
