"""The rows of a table with several models side by side: what each says of one model."""

from collections.abc import Callable
from functools import partial
from typing import Any

from .beyond import SPLINE
from .layout import LEAKING, UPSIDE_DOWN, Cell, forced_share, sharing_splits, split_mark, suspicious_splits
from .results import Results
from .words import interval, measured, names, number, percent, symbol

TITLE = "Bag-of-Coins: side by side"
NOTE = "With 95 % intervals. ECE: lower is better. AUROC: higher is better, and 0.5 is chance."
BEYOND_NOTE = (
    "Does the geometry of the logits tell anything that confidence does not? Two models are fitted to tell both sets "
    "apart, one by p̂ alone and one by p̂ and ρ, and judged on samples that they have not seen; “gained by ρ” is the "
    "difference."
)
SCORES = ("msp", "energy", "logit_gap", "p_value", "gap", "concentration", "structural_score", "odin", "mahalanobis")
NOTHING = Cell("–")
Row = tuple[Cell, Callable[[Results], Cell]]
BeyondRow = tuple[Cell, Callable[[Any], Cell]]


def rows() -> list[Row]:
    """Names of rows, each with a function that gives the cell of a model."""
    found: list[Row] = [(Cell("classes"), _classes), (Cell("OOD set"), _ood_set), (Cell("accuracy"), _accuracy)]
    found.append((Cell("calibrated on"), _calibrated_on))
    for method in ("MSP", "temperature", "isotonic", "vector scaling", "BoC"):
        found.append((Cell(f"ECE, {method}"), partial(_calibrated, method, leaking=False)))
        if method == "temperature":
            found.append((Cell(f"ECE, {method}", mark=LEAKING), partial(_calibrated, method, leaking=True)))
    for score in SCORES:
        mark = UPSIDE_DOWN if score == "structural_score" else ""
        found.append((Cell(f"AUROC, {symbol(score)}", mark=mark), partial(_detected, score)))
    for title, kind in (("ID", "id"), ("OOD", "ood")):
        found.append((Cell(f"mean Δ, {title}"), partial(_gap, kind, _mean)))
        found.append((Cell(f"forced by p̂, {title}"), partial(_gap, kind, _share)))
    return found


def beyond_rows() -> list[BeyondRow]:
    """The same for what `beyond_confidence` found of a model, or None."""
    return [
        (Cell("AUROC, model of p̂"), _alone),
        (Cell("AUROC, model of p̂ and ρ"), partial(_added, "auroc")),
        (Cell("gained by ρ"), partial(_added, "versus_confidence")),
    ]


def beyond_sentence(table: Any) -> str:
    """Whether the concentration helps to tell both sets apart once confidence is known."""
    row = _models(table, "concentration").iloc[0]
    tells = "tells more" if row["versus_confidence_low"] > 0 else "is not shown to tell more"
    values = f"AUROC {number(row['auroc'])} against {_alone(table).text} of p̂ alone"
    return f"In a model beside p̂, ρ {tells}: {values}, a difference of {measured(row, 'versus_confidence', sign=True)}."


def _classes(results: Results) -> Cell:
    return Cell(str(results.settings["classes"]))


def _ood_set(results: Results) -> Cell:
    return Cell(next(iter(names(results.ood["ood"])), "–"))


def _accuracy(results: Results) -> Cell:
    return Cell(number(float(results.settings["accuracy"])))


def _calibrated_on(results: Results) -> Cell:
    split = _split(results, leaking=False)
    return Cell(split, mark=split_mark(results, split)) if split else NOTHING


def _split(results: Results, *, leaking: bool) -> str:
    """The first split that does not look like training data, or if all do, the first; or beside it one that does."""
    splits, suspicious = names(results.calibration["split"]), suspicious_splits(results) + sharing_splits(results)
    honest = [split for split in splits if split not in suspicious]
    chosen = [split for split in splits if split in suspicious and honest] if leaking else honest or splits
    return next(iter(chosen), "")


def _calibrated(method: str, results: Results, *, leaking: bool) -> Cell:
    table = results.calibration[results.calibration["method"] == method]
    wanted = table[table["split"] == ("" if method in ("MSP", "BoC") else _split(results, leaking=leaking))]
    return _value(wanted, "ece")


def _detected(score: str, results: Results) -> Cell:
    return _value(results.ood[results.ood["score"] == score], "auroc")


def _gap(kind: str, show: Callable[[Any], Cell], results: Results) -> Cell:
    table = results.gaps[results.gaps["kind"] == kind]
    return show(table.iloc[0]) if len(table) else NOTHING


def _mean(row: Any) -> Cell:
    return Cell(number(row["gap"]))


def _share(row: Any) -> Cell:
    return Cell(percent(forced_share(row)), f"R² {number(row['r2'], 3)}")


def _alone(table: Any) -> Cell:
    """The better of the two models that know confidence alone."""
    known = None if table is None else _models(table, "confidence", SPLINE)
    return NOTHING if known is None else _value(known.sort_values("auroc", ascending=False), "auroc")


def _added(column: str, table: Any) -> Cell:
    return NOTHING if table is None else _value(_models(table, "concentration"), column, sign=column != "auroc")


def _models(table: Any, *quantities: str) -> Any:
    return table[(table["how"] == "model") & table["what"].isin(quantities)]


def _value(table: Any, column: str, *, sign: bool = False) -> Cell:
    """A value of the first row with its interval."""
    if not len(table):
        return NOTHING
    return Cell(number(table.iloc[0][column], sign=sign), interval(table.iloc[0], column, sign=sign))
