"""OOD detection: the detection rate of each score at 5 % FPR."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

from ..plots import CYCLE
from .chart import SETS, Chart
from .elements import NOTHING, Cell, Section, Table, cells, make_table
from .format import (
    BASELINE,
    FEW,
    PERCENT,
    UPSIDE_DOWN,
    comparisons_note,
    join_words,
    number,
    percent,
    score_label,
    value_text,
)
from .results import Results, where

# The score of `ConformalTest` and `DriftMonitor`.
DEFAULT = "gen"
DETECTED = "detected at 5 % FPR"
# What the first table and the ROC curves show; the tables behind a click have every score.
MAIN_SCORES = (BASELINE, "energy", "gen", "tempered_dominance", "gap")
ROC_SCORES = (BASELINE, "energy", "log_p_value", "structural_score")
# How many scores of users, that is of detectors and columns, are in the first table and among the ROC curves.
OWN = 3


def detection_section(results: Results) -> Section:
    """How well each score tells the test set from each OOD set."""
    title, sets = "OOD detection", results.ood["ood"].unique()
    if not len(sets):
        return Section(title, ["No OOD set was given: detection is not evaluated."])
    table = results.ood[~results.ood["upside_down"].astype(bool) & results.ood["auroc"].notna()]
    hopeless: list[str] = []
    sentences, charts, tables, more = [], {}, [], {}
    for place, name in enumerate(sets):
        rows, whole = where(table, ood=name), where(results.ood, ood=name)
        users = whole[whole["kind"] != "score"].sort_values("auroc", ascending=False, kind="stable")["score"][:OWN]
        if (rows["auroc_sign"] > 0).any():
            sentences.append(advice(name, rows, short=len(sets) > FEW))
        elif len(rows):
            hopeless.append(f"“{name}”")
        main = whole[whole["score"].isin([*MAIN_SCORES, *users])].sort_values("fpr95", kind="stable")
        areas = [cell._replace(small="") for cell in cells(main, "auroc", 3)]
        columns = {"score": score_names(main), DETECTED: detected_cells(main, bars=True), "AUROC": areas}
        tables.append(make_table(f"{results.test_set} against {name}", columns, "bars"))
        more[f"All {len(whole)} scores on {name}, with intervals"] = [score_table(results, name, whole)]
        if place < SETS:
            charts["roc" if not place else f"roc-{place + 1}"] = roc_chart(results, whole, (*ROC_SCORES, *users))
    if hopeless:
        note = comparisons_note(len(table))
        sentences.append(f"On {join_words(hopeless)} no score is shown to detect better than chance{note}.")
    return Section(title, sentences, charts, tables, more)


def advice(name: str, table: Any, *, short: bool) -> str:
    """The detection rate of the default score on a set, and those of confidence and of the best score."""
    most = table.loc[table["fpr95"].idxmin()]["score"]
    rates: list[str] = []
    for score in dict.fromkeys([DEFAULT, BASELINE, most]):
        for _, row in where(table, score=score).iterrows():
            rate = f"{score_label(score)} detects {percent(1 - row['fpr95'])}"
            rates.append(rate if rates else f"{rate} at 5 % FPR (AUROC {value_text(row, 'auroc')})")
    return f"On “{name}” {rates[0] if short else join_words(rates)}."


def score_names(table: Any) -> list[Cell]:
    """The names of scores, with their keys."""
    names = []
    for key, turned in zip(table["score"], table["upside_down"], strict=True):
        small = "" if score_label(key).casefold() == key.casefold().replace("_", " ") else key
        names.append(Cell(score_label(key), small, mark=UPSIDE_DOWN if turned else ""))
    return names


def detected_cells(table: Any, *, bars: bool = False) -> list[Cell]:
    """The detection rates at 5 % FPR; the best is emphasised."""
    detected, low, high = (1 - table[f"fpr95{end}"] for end in ("", "_high", "_low"))
    turned = table.assign(detected=detected, detected_low=low, detected_high=high)
    shares = cells(turned, "detected", best=detected.max(), **PERCENT)
    return [cell._replace(bar=share) for cell, share in zip(shares, detected, strict=True)] if bars else shares


def score_table(results: Results, name: str, table: Any) -> Table:
    """Every score on one OOD set."""
    versus = cells(table, "versus_msp", sign=True)
    versus = [NOTHING if score == BASELINE else cell for score, cell in zip(table["score"], versus, strict=True)]
    both = where(results.overlaps, set=name, suspicious=True)
    shared = f"; {both.iloc[0]['shared']:,} samples are in both sets" if len(both) else ""
    return make_table(
        f"{results.test_set} (positive) against {name}, with 95 % intervals. The detection rate is 1 − FPR95{shared}",
        {
            "score": score_names(table),
            "AUROC": cells(table, "auroc", best=table["auroc"].max()),
            DETECTED: detected_cells(table),
            "AUPR": cells(table, "aupr", best=table["aupr"].max()),
            "AUROC vs confidence": versus,
        },
    )


def roc_chart(results: Results, table: Any, scores: Sequence[str]) -> tuple[Chart, str]:
    """ROC curves of some scores on one OOD set; that of p* often lies on that of confidence, so it is dashed."""
    name, parts = table.iloc[0]["ood"], []
    chart = Chart(f"{name} passed", f"{results.test_set} passed")
    chart.rule((0, 1), (0, 1))
    for score, colour in zip(scores, cycle(CYCLE), strict=False):
        curve, row = where(results.roc, ood=name, score=score), where(table, score=score)
        if len(curve):
            mark = f", {UPSIDE_DOWN}" if row.iloc[0]["upside_down"] else ""
            parts.append(f"{score_label(score)} {number(row.iloc[0]['auroc'], 3)}{mark}")
            style = 'stroke-dasharray="5 4"' if score == "log_p_value" else ""
            chart.line(curve["fpr"], curve["tpr"], colour, parts[-1], style)
    return chart, f"ROC curves, {results.test_set} against {name}: AUROC {', '.join(parts)}."
