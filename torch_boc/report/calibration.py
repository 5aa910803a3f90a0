"""Calibration: is the model over- or underconfident, and which calibrator helps?"""

from typing import Any, NamedTuple

from ..calibration import CALIBRATORS, DominanceConfidence, Uncalibrated, VectorScaling
from ..plots import BLUE, FEW_SAMPLES, GREEN, GREY, ORANGE
from .chart import Chart
from .elements import Cell, Section, Table, cells, make_table
from .format import PERCENT, comparisons_note, ece_text, number, p_text, percent
from .results import Results, where

MSP = Uncalibrated.name
EASIER, HARDER, SHARING = "easier than the test set", "harder than the test set", "shares test samples"
CALLED = {MSP: "uncalibrated", DominanceConfidence.name: "dominance q̄ (BoC)"}
# The methods that give a confidence only.
WITHOUT_LOGITS = [method.name for method in CALIBRATORS if not method.gives_logits]


class CalibrationAdvice(NamedTuple):
    """What may be said of calibration.

    Attributes:
        plain: the row of the uncalibrated confidence.
        best: the row of the calibrator to use, or None.
        fitted: the number of calibrators that were fitted on trusted splits.
    """

    plain: Any
    best: Any
    fitted: int

    @property
    def miscalibrated(self) -> bool:
        """Whether the interval of the ECE excludes 0 as printed."""
        return number(self.plain["ece_low"], **PERCENT) != number(0, **PERCENT)

    @property
    def verb(self) -> str:
        """What the calibrator does: its interval includes 0, or it does not."""
        return "corrects" if self.best["ece_low"] <= 0 else "improves"


def split_marks(results: Results) -> dict[str, str]:
    """The faults of calibration splits that cannot be trusted."""
    marks = {}
    for _, row in where(results.leaks, suspicious=True).iterrows():
        marks[row["split"]] = EASIER if row["accuracy"] > row["test_accuracy"] else HARDER
    return marks | dict.fromkeys(where(results.overlaps, kind="calibration", suspicious=True)["set"], SHARING)


def method_text(row: Any) -> str:
    """A calibration method and the split that it was fitted on."""
    name = CALLED.get(row["method"], row["method"])
    return f"{name} fitted on “{row['split']}”" if row["split"] else str(name)


def calibration_advice(results: Results) -> CalibrationAdvice | None:
    """The calibrator to use; None without targets."""
    table, chosen = results.calibration, results.settings["calibrator"]
    plain = where(table, method=MSP)
    if not len(plain):
        return None
    fitted = (table["split"] != "") & ~table["split"].isin(split_marks(results))
    best = where(table, **chosen).iloc[0] if chosen else None
    return CalibrationAdvice(plain.iloc[0], best, int(fitted.sum()))


def direction(results: Results) -> str:
    """Whether the model is overconfident or underconfident."""
    confidence, accuracy = results.gaps.iloc[0]["confidence"], results.settings["accuracy"]
    error = where(results.calibration, method=MSP)["ece"].iloc[0]
    if abs(confidence - accuracy) < error / 2:
        return "overconfident in some ranges and underconfident in others"
    return "overconfident" if confidence > accuracy else "underconfident"


def calibration_section(results: Results) -> Section:
    """Does confidence match accuracy?"""
    title, advice = "Calibration", calibration_advice(results)
    if advice is None:
        return Section(title, [f"“{results.test_set}” has no targets: calibration is not evaluated."])
    plain, best = advice.plain, advice.best
    means = f"Mean confidence is {percent(results.gaps.iloc[0]['confidence'])}, accuracy {percent(plain['accuracy'])}"
    chance = f"{percent(plain['ece_chance'])} is expected of a calibrated model"
    sentences = [f"{means}: {ece_text(plain)}, {direction(results) if advice.miscalibrated else chance}."]
    if best is not None:
        method = method_text(best)
        lead = f"{method[0].upper()}{method[1:]} {advice.verb} it: {ece_text(best)}"
        sentences.append(f"{lead}{comparisons_note(advice.fitted)}.")
    elif advice.fitted:
        sentences.append(f"No calibrator is shown to improve it{comparisons_note(advice.fitted)}.")
    else:
        sentences.append("No calibrator was fitted on held-out samples.")
    dots = f"Dots: accuracy by confidence, in bins with at least {FEW_SAMPLES} samples"
    note = f"{dots}, with 95 % intervals. The dotted line is perfect calibration."
    more = {"All calibration methods": [error_table(results)]}
    return Section(title, sentences, reliability_chart(results, best), more=more, note=note)


def reliability_chart(results: Results, best: Any) -> dict[str, tuple[Chart, str]]:
    """Accuracy against confidence: uncalibrated, by the advised method or else vector scaling, and dominance."""
    chart = Chart("confidence", "accuracy")
    chart.rule((0, 1), (0, 1))
    table, parts = results.reliability[results.reliability["samples"] >= FEW_SAMPLES], []
    fitted = VectorScaling.name if best is None else best["method"]
    drawn = {MSP: ORANGE, fitted: BLUE, DominanceConfidence.name: GREEN}
    for (method, split), rows in table.groupby(["method", "split"], sort=False):
        if method not in drawn:
            continue
        leaks = split_marks(results).get(split, "")
        name = CALLED.get(method, f"{method}, {split}")
        colour = GREY if leaks else drawn[method]
        chart.line(rows["confidence"], rows["accuracy"], colour, name, 'stroke-dasharray="6 4"' if leaks else "")
        for _, row in rows.iterrows():
            tooltip = f"{name}: confidence {percent(row['confidence'])}, accuracy {percent(row['accuracy'])}"
            ends = row["accuracy_low"], row["accuracy_high"]
            chart.dot(row["confidence"], row["accuracy"], colour, f"{tooltip}, {row['samples']:,} samples", ends)
        error = where(results.calibration, method=method, split=split)["ece"]
        parts.append(f"{name}: ECE {number(float(error.iloc[0]))}" if len(error) else name)
    alt = f"Reliability diagram, accuracy against confidence in each bin. {'; '.join(parts)}."
    return {"reliability": (chart, alt)} if parts else {}


def error_table(results: Results) -> Table:
    """The errors of each method. The lowest of the splits that can be trusted are emphasised."""
    marks, table = split_marks(results), results.calibration
    lowest = table[~table["split"].isin(marks)].min(numeric_only=True)
    names = []
    for _, row in table.iterrows():
        fitted = f"fitted on {row['split']}" if row["split"] else ""
        names.append(Cell(CALLED.get(row["method"], row["method"]), fitted, mark=marks.get(row["split"], "")))
    losses = cells(table, "nll", best=lowest["nll"])
    for place, method in enumerate(table["method"]):
        if method in WITHOUT_LOGITS:
            losses[place] = Cell(CALLED[MSP])
    return make_table(
        f"Calibration on {results.test_set}, with 95 % intervals; lower errors are better. “By chance” is the ECE of a "
        "perfectly calibrated model on as many samples",
        {
            "method": names,
            "ECE": cells(table, "ece", best=lowest["ece"]),
            "by chance": cells(table, "ece_chance"),
            "ECE vs uncalibrated": cells(table, "ece_versus_msp", sign=True),
            "NLL": losses,
            "Brier": cells(table, "brier", best=lowest["brier"]),
            "accuracy": cells(table, "accuracy"),
            "T": cells(table, "temperature", 3),
        },
    )


def leak_sentences(results: Results) -> list[str]:
    """A sentence for each split that is easier or harder than the test set."""
    sentences = []
    for _, row in where(results.leaks, suspicious=True).iterrows():
        easier = row["accuracy"] > row["test_accuracy"]
        fits = where(results.calibration, split=row["split"])
        fit, fault = fits[fits["temperature"] < 1], "Calibrators fitted there do not transfer."
        if easier and len(fit):
            value, error = number(fit.iloc[0]["temperature"], 3), ece_text(fit.iloc[0])
            fault = f"A temperature fitted there, {value}, is below 1 and raises the confidence: {error}."
        kind, cause = (EASIER, "training data") if easier else (HARDER, "other labels")
        accuracy = f"accuracy is {percent(row['accuracy'])} there and {percent(row['test_accuracy'])} on the test set"
        lead = f"Do not fit on “{row['split']}”: {accuracy} ({p_text(row['p_value'])})"
        sentences.append(f"{lead}. The split is {kind}: {cause}, or another class mix. {fault}")
    return sentences
