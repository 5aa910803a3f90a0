"""Does a confidence of 80 % mean that 80 % are right? The errors of each method, and which method is best."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from ..calibration import Calibrator, Uncalibrated, calibrators
from .claims import over, shown
from .parts import NOTHING, Cell, ContrastRow, Table, Topic, are_best, present, value_cell
from .reliability import RELIABILITY
from .results import Results
from .splits import LEAKING, first_split, leak_sentences, sharing_splits, split_mark, split_table, suspicious_splits
from .words import distinct_names, interval_text, listed, number, quoted, value_text

INTRODUCTION = (
    "Does a confidence of 80 % mean that 80 % are right? The confidence of each method is compared with the share of "
    "right predictions. “By chance” is the error that perfectly calibrated confidences would show with as many "
    "samples. Chance adds to every ECE. Therefore the interval, which is for the true error, reaches further down than "
    "up, and begins at 0 if the method may be perfectly calibrated. “ECE vs MSP” is the difference on the same samples."
)
MSP = Uncalibrated.name


def calibration_table(results: Results) -> Table | None:
    """The ECE, the NLL and the Brier score of each method.

    The lowest are emphasised, but not those of a method that was fitted on samples of the test set.
    """
    table = results.calibration
    if not len(table) or not table["ece"].notna().any():
        return None
    borrowed, sharing = table["method"].isin(_without_logits()), table["split"].isin(sharing_splits(results))
    columns = (table["ece"], table["nll"].mask(borrowed), table["brier"])
    best = [are_best(column.mask(sharing), min) for column in columns]
    rows = []
    for i, (_, row) in enumerate(table.iterrows()):
        split = str(row["split"])
        method = Cell(str(row["method"]), f"fitted on {split}" if split else "", mark=split_mark(results, split))
        flagged = zip(("ece", "nll", "brier"), best, strict=True)
        values = [Cell(number(row[name]), interval_text(row, name), flags[i]) for name, flags in flagged]
        if borrowed.iloc[i]:
            values[1] = Cell(f"as {MSP}")
        values[1:1] = [Cell(number(row["ece_chance"])), _versus_msp(row)]
        rows.append([method, *values, Cell(number(row["accuracy"])), Cell(number(row["temperature"], 3))])
    return Table(
        f"Calibration on {results.known}, with 95 % intervals; lower errors are better",
        ["method", "ECE", "by chance", "ECE vs MSP", "NLL", "Brier", "accuracy", "T"],
        rows,
        heading="Calibration: lower errors (ECE, NLL, Brier) are better",
        pages_only=("by chance", "ECE vs MSP"),
    )


def _text(results: Results) -> str:
    borrowing = _without_logits()
    if not borrowing:
        return INTRODUCTION
    several = len(borrowing) > 1
    verb, whose = ("give", "their") if several else ("gives", "its")
    return f"{INTRODUCTION} {_capital(listed(borrowing))} {verb} a confidence only: {whose} NLL is that of {MSP}."


def _without_logits() -> list[str]:
    """The methods that give a confidence only."""
    return [method.name for method in calibrators() if not method.gives_logits]


def _versus_msp(row: Any) -> Cell:
    if row["method"] == MSP:
        return NOTHING
    return Cell(number(row["ece_versus_msp"], sign=True), interval_text(row, "ece_versus_msp", sign=True))


def calibrated(results: Results) -> Iterable[str]:
    """Which method is shown to be better calibrated than plain confidence, if there is one."""
    table = results.calibration[results.calibration["ece"].notna()]
    # A low error of a method that was fitted on samples of the test set is no achievement.
    seen = table["split"].isin(sharing_splits(results))
    table = table[~seen]
    plain = table[table["method"] == MSP]
    if not len(plain):
        yield f"{quoted(results.known)} has no targets, so nothing is said of calibration."
        return
    msp, others = plain.iloc[0], table[table["method"] != MSP]
    lowest, better = table.loc[table["ece"].idxmin()], others[shown(others, "ece_versus_msp") < 0]
    if len(better):
        best = better.loc[better["ece"].idxmin()]
        doubt = ", though that split looks like training data" if best["split"] in suspicious_splits(results) else ""
        yield (
            f"Best calibrated is {_method(best)}{doubt}: ECE {value_text(best, 'ece')}, against "
            f"{value_text(msp, 'ece')} of plain confidence, {MSP}{over(len(others))}."
            f"{_ties(best, others)}{_perfect(best)}"
        )
        return
    fitted = len(distinct_names(table["split"])) > 0
    none = "Nothing was fitted on other samples" if seen.any() else "No calibration set was given"
    rivals = "No method is" if fitted else f"{none}, and BoC is not"
    rest = ""
    if lowest["method"] != MSP:
        rest = f"; the lowest, {value_text(lowest, 'ece')} of {_method(lowest)}, differs by "
        rest += f"{value_text(lowest, 'ece_versus_msp', sign=True)}, which is within chance{over(len(others))}"
    said = _perfect(msp) or _perfect(lowest)
    yield f"{rivals} shown to beat plain confidence ({MSP}), whose ECE is {value_text(msp, 'ece')}{rest}.{said}"


def _perfect(row: Any) -> str:
    """A sentence if a perfectly calibrated confidence could have that error: if its interval begins at 0."""
    if not row["ece_low"] <= 0:
        return ""
    chance = number(row["ece_chance"])
    return f" A perfectly calibrated confidence has an ECE of {chance} by chance alone: {_method(row)} may be perfect."


def _ties(best: Any, others: Any) -> str:
    """A sentence about the other methods whose ECE is not shown to be higher than that of the best."""
    rest = others[shown(others, "ece_versus_best") == 0]
    close = [_method(row) for place, row in rest.iterrows() if place != best.name]
    verb = "are" if len(close) > 1 else "is"
    return f" {_capital(listed(close))} {verb} not shown to be worse." if close else ""


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _method(row: Any) -> str:
    """A calibration method and the split that it was fitted on."""
    return f"{row['method']} fitted on {quoted(row['split'])}" if row["split"] else str(row["method"])


def _contrast() -> Iterable[ContrastRow]:
    yield Cell("calibrated on"), _calibrated_on
    for method in calibrators():
        yield Cell(f"ECE, {method.name}"), partial(_error, method, leaking=False)
        if method.needs_fit and method.in_diagram:
            yield Cell(f"ECE, {method.name}", mark=LEAKING), partial(_error, method, leaking=True)


def _calibrated_on(results: Results) -> Cell:
    split = first_split(results)
    return Cell(split, mark=split_mark(results, split)) if split else NOTHING


def _error(method: Calibrator, results: Results, *, leaking: bool) -> Cell:
    table = results.calibration[results.calibration["method"] == method.name]
    split = first_split(results, leaking=leaking) if method.needs_fit else ""
    return value_cell(table[table["split"] == split], "ece")


CALIBRATION = Topic(
    "Calibration",
    _text,
    lambda results: present(calibration_table(results), split_table(results)),
    (RELIABILITY,),
    sentences=(calibrated,),
    details=(leak_sentences,),
    contrast=_contrast,
    glossary=(
        ("p̂", "confidence: the largest softmax probability."),
        ("MSP", "plain confidence p̂, the maximum softmax probability, as a method or a score."),
        ("ECE", "expected calibration error: the mean difference between confidence and the share that is right."),
        ("NLL", "negative log-likelihood of the right class, on average."),
        ("Brier", "the mean squared difference between confidence and being right (1) or wrong (0)."),
        ("T", "the temperature that the logits are divided by."),
    ),
)
