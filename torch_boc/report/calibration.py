"""Does a confidence of 80 % mean that 80 % are right? Errors of each method, the reliability diagram, and the best."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from ..calibration import Calibrator, DominanceConfidence, TemperatureScaling, Uncalibrated, calibrators
from ..plots import BLUE, FEW_SAMPLES, GREEN, GREY, ORANGE
from .axes import finish, panels
from .claims import over, shown
from .parts import NOTHING, Cell, ContrastRow, Figure, Table, Topic, are_best, present, value_cell
from .results import Results
from .splits import LEAKING, first_split, leak_sentences, sharing_splits, split_mark, split_table, suspicious_splits
from .words import distinct_names, interval_text, listed, number, quoted, value_text

INTRODUCTION = (
    "Does a confidence of 80 % mean that 80 % are right? Each method’s confidence is compared with how often it is "
    "right; “by chance” is the error that perfectly calibrated confidences would show with as many samples. Chance "
    "adds to every ECE: its interval is that of the true error, reaches further down than up, and begins at 0 where "
    "the method may be perfect. “ECE vs MSP” is the difference on the same samples."
)
MSP = Uncalibrated.name
CURVES = {
    MSP: (BLUE, "o-"),
    TemperatureScaling.name: (GREEN, "^-"),
    DominanceConfidence.name: (ORANGE, "s--"),
}
SECOND_SPLIT = "#CC79A7"


def calibration_table(results: Results) -> Table | None:
    """ECE, NLL and Brier score of each method, the lowest that is honest emphasised."""
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
    said, several = listed(borrowing), len(borrowing) > 1
    verb, whose = ("give", "their") if several else ("gives", "its")
    return f"{INTRODUCTION} {said[0].upper()}{said[1:]} {verb} a confidence only: {whose} NLL is that of {MSP}."


def _without_logits() -> list[str]:
    """The methods that give a confidence only."""
    return [method.name for method in calibrators() if not method.gives_logits]


def _versus_msp(row: Any) -> Cell:
    if row["method"] == MSP:
        return NOTHING
    return Cell(number(row["ece_versus_msp"], sign=True), interval_text(row, "ece_versus_msp", sign=True))


def reliability_figure(results: Results) -> Any:
    """Accuracy against confidence with bootstrap bands, for plain confidence, temperature and BoC."""
    table = results.reliability[results.reliability["samples"] >= FEW_SAMPLES]
    curves = reliability_curves(results)
    if not curves or not len(table):
        return None
    figure, (axis,) = panels(1)
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
    for i, (method, split, label) in enumerate(curves):
        rows = table[(table["method"] == method) & (table["split"] == split)].sort_values("bin_low")
        colour, style = CURVES[method]
        colour = SECOND_SPLIT if any(method == other for other, _, _ in curves[:i]) else colour
        axis.fill_between(
            rows["confidence"], rows["accuracy_low"], rows["accuracy_high"], color=colour, alpha=0.18, linewidth=0
        )
        axis.plot(rows["confidence"], rows["accuracy"], style, color=colour, markersize=4, linewidth=1.4, label=label)
    axis.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    return finish(figure, [axis], "upper left")


def reliability_curves(results: Results) -> list[tuple[str, str, str]]:
    """Method, split and label of what the reliability diagram shows: with several splits the first two temperatures."""
    table = results.reliability
    pairs = list(dict.fromkeys(zip(table["method"], table["split"], strict=True)))
    fits = [pair for pair in pairs if pair[0] == TemperatureScaling.name][:2]
    chosen = [pair for pair in pairs if pair in fits or (pair[0] in CURVES and not pair[1])]
    return [(method, split, f"{method}, {split}" if len(fits) > 1 and split else method) for method, split in chosen]


def _describe(results: Results) -> str:
    parts = []
    for method, split, label in reliability_curves(results):
        rows = results.calibration[(results.calibration["method"] == method) & (results.calibration["split"] == split)]
        parts.append(f"{label}: ECE {number(rows.iloc[0]['ece'])}" if len(rows) else label)
    return f"Reliability diagram, accuracy against confidence in each bin, with 95 % bands. {'; '.join(parts)}"


def calibrated(results: Results) -> Iterable[str]:
    """Which method is shown to be better calibrated than plain confidence, if any is."""
    table = results.calibration[results.calibration["ece"].notna()]
    seen = table["split"].isin(sharing_splits(results))  # fitted on samples of the test set: no achievement
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
            f"Best calibrated is {_method(best)}{doubt}{_ties(best, others)}: ECE {value_text(best, 'ece')}, against "
            f"{value_text(msp, 'ece')} of plain confidence, MSP{over(len(others))}.{_perfect(best)}"
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
    yield f"{rivals} shown to beat plain confidence (MSP), whose ECE is {value_text(msp, 'ece')}{rest}.{said}"


def _perfect(row: Any) -> str:
    """Whether a perfectly calibrated confidence could have that error: its interval begins at 0."""
    if not row["ece_low"] <= 0:
        return ""
    chance = number(row["ece_chance"])
    return f" Chance alone gives perfectly calibrated confidences {chance}: {_method(row)} may be perfect."


def _ties(best: Any, others: Any) -> str:
    """The other methods whose ECE is not shown to be above the lowest."""
    rest = others[shown(others, "ece_versus_best") == 0]
    close = [_method(row) for place, row in rest.iterrows() if place != best.name]
    return f", not told apart from {listed(close)}" if close else ""


def _method(row: Any) -> str:
    """A calibration method and the split it was fitted on."""
    return f"{row['method']} fitted on {quoted(row['split'])}" if row["split"] else str(row["method"])


def _contrast() -> Iterable[ContrastRow]:
    yield Cell("calibrated on"), _calibrated_on
    for method in calibrators():
        yield Cell(f"ECE, {method.name}"), partial(_error, method, leaking=False)
        if method.name == TemperatureScaling.name:
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
    (
        Figure(
            "reliability",
            reliability_figure,
            "How often predictions of a given confidence are right, where there are 10 of them or more. Dotted: "
            "perfect. Shaded: 95 % bootstrap bands.",
            _describe,
        ),
    ),
    sentences=(calibrated,),
    details=(leak_sentences,),
    contrast=_contrast,
    glossary=(
        ("p̂", "confidence: the largest softmax probability."),
        ("MSP", "plain confidence p̂, the maximum softmax probability, as a method or a score."),
        ("ECE", "expected calibration error: how far confidence is from the share that is right, on average."),
        ("NLL", "negative log-likelihood of the right class, on average."),
        ("Brier", "the mean squared difference between confidence and being right (1) or wrong (0)."),
        ("T", "the temperature that the logits are divided by."),
    ),
)
