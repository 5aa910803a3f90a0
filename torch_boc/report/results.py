"""The results of an evaluation as tables. Figures, pages and files are made from nothing else.

Shares and scores are fractions, not percentages. The ends of the 95 % interval of a column `x` are in `x_low` and
`x_high`. NaN means that there is no value, and "" that there is no name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._optional import require

# The columns of a report that hold names; all others hold numbers.
NAMES = ("split", "method", "ood", "score", "set", "kind", "test", "held_out", "name")


# The columns of each table of `Results`; one with ± has an interval.
TABLES = {
    "calibration": "split method ece± nll± brier± ece_chance ece_versus_msp± accuracy temperature sign",
    "ood": "ood score auroc± fpr95± aupr± versus_msp± kind upside_down auroc_sign versus_sign",
    "leaks": "split samples accuracy test_accuracy p_value suspicious",
    "overlaps": "set kind samples shared exact suspicious",
    "gaps": "set kind samples confidence dominance gap forced_gap free_gap concentration r2 rejection_rate p_value",
    "coherence": "set bin_low bin_high samples confidence gap forced_gap",
    "reliability": "split method bin_low bin_high samples confidence accuracy±",
    "roc": "ood score fpr tpr",
    "screening": "test score alpha held_out held_out_samples set kind samples flagged± rate_low rate_high chance",
    "stream": "ood score alpha sample kind evidence",
    "delays": "ood score alpha streams early missed delay delay_most",
    "acceptance": "error probability held_out held_out_samples needed threshold samples accepted± wrong±",
    "review": "set kind share threshold detected accuracy",
    "classes": "prediction samples precision confidence calibrated excess± sign",
    "confusions": "target prediction samples",
    "samples": "set kind row name prediction target confidence gap log_odds p_value",
}
COLUMNS = TABLES | {"differences": "model than what ood difference± sign"}


def frame(table: str, rows: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
    """A DataFrame with the columns of a table, even if there are no rows.

    >>> list(frame("differences"))
    ['model', 'than', 'what', 'ood', 'difference', 'difference_low', 'difference_high', 'sign']
    """
    columns: list[str] = []
    for name in COLUMNS[table].split():
        value = name.removesuffix("±")
        columns += [value] if value == name else [value, f"{value}_low", f"{value}_high"]
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

    Tables are pandas DataFrames under their names, as in `results.ood`; `TABLES` lists their columns. Rows are in the
    order in which they are shown. A `sign` is 1 or -1 if the difference is significant by Holm's method, otherwise 0.

    Attributes:
        settings: title, trials, bins, replicates, seed, level (of all tests), classes, class_names (a list, or None),
            samples (a dict by set), accuracy (of the test set, NaN without targets), shifted_accuracy (if all targets
            were lower by one), calibrator (the `method` and `split` to use, or None), review_share (the share to
            review, or None), violations (what refutes the guarantees on the test set: a list of "error", "flagged" and
            "drift"), from_probabilities (bool), date (ISO), versions (a dict of torch_boc and torch). If sets were
            larger than `max_rows`, sampled (a dict of the number of all their rows). If they hold columns instead of
            logits, from_columns (True) and left_out (a list of names).
        calibration: the errors of each calibration method and each split that it was fitted on, "" for none. The
            interval of `ece` is for the true error, which the same bins would have with infinitely many samples. Chance
            adds to the estimate, so the interval reaches further down than up, and begins at 0 if the method may be
            perfectly calibrated. `ece_chance` is the mean error that perfectly calibrated confidences have by chance.
            `ece_versus_msp` (with `sign`) is the difference from MSP, on the same resamples. `temperature` is NaN
            without one.
        ood: how well each score separates the test set from each OOD set. `auroc_sign` compares with 0.5. `versus_msp`
            (with `versus_sign`) is the paired difference from the AUROC of msp; `kind` is "score", "detector" or
            "column".
        leaks: for each calibration split, whether it is easier or harder than the test set; see `LeakTest`.
        overlaps: for each set other than the test set, how many rows of the test set it contains (`shared`), how many
            of these agree in every digit of float32 (`exact`), and whether that is more than chance explains
            (`suspicious`). `kind` is "calibration", "ood" or "train".
        gaps: means over each set. `kind` is "id" or "ood", here and below. `r2` is the part of the variance of the gap
            that the forced gap explains.
        coherence: means over each set and bin of confidence.
        reliability: the accuracy of each calibration method in each bin of its confidence.
        roc: the points of the ROC curve of each OOD set and score, at most about 500 for each.
        screening: the share of each set that each test ("conformal" of a score, or "paper") flags at each level, with
            the interval of Clopper and Pearson; NaN if there are too few held-out samples. `held_out` is the split that
            the test is calibrated on, "" for a random half of the test set. The FPR is between `rate_low` and
            `rate_high` for 95 % of the draws of the held-out samples. `chance` is the probability of at least as
            many flagged samples if the set is exchangeable with the held-out samples.
        stream: the evidence of a drift monitor after each sample of a stream that turns from the test set to an OOD
            set. The alarm is at an evidence of log(1 / alpha).
        delays: of many such streams, the median detection delay in samples and the delay of 90 % of them, inf without
            an alarm; how many had an alarm before the first OOD sample (`early`), and how many had none (`missed`).
        acceptance: the coverage at a selective risk of at most `error`, with this `probability` over the draw of the
            held-out set: predictions whose log odds are at least `threshold` are accepted, inf if none can be.
            `needed` is the least number of held-out samples with which any can be. `wrong` is the selective risk on the
            test set, NaN if nothing is accepted; intervals are those of Clopper and Pearson. No rows without targets.
        review: what a review of this share of the test set detects, the least confident first: those whose confidence
            is below `threshold`. `detected` is the share of all errors for the test set, and the share of the samples
            for an OOD set; `accuracy` is that of the rest of the test set.
        classes: for each predicted class, the `precision`, and the mean confidence, raw and calibrated by vector
            scaling on the first trusted split (NaN without one). `excess` is precision minus confidence.
        confusions: the most frequent errors.
        samples: the least confident samples of each set. `row` is the position in its set, from 0 on, `name` its file
            name or id, `target` is -1 if it is unknown, and the conformal `p_value` is NaN for samples that the test
            was calibrated on.
    """

    settings: Mapping[str, Any]
    tables: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name not in TABLES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.tables[name]

    @property
    def test_set(self) -> str:
        """The name of the test set."""
        return str(next(iter(self.settings["samples"]), "test"))

    def class_name(self, index: int) -> str:
        """The name of a class, or its number."""
        names = self.settings.get("class_names")
        return "–" if index < 0 else str(names[index]) if names else f"class {index}"
