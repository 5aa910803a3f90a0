"""Which score finds the unfamiliar: what each score catches, and which one to use."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

from .parts import NOTHING, Cell, Section, Table, cells, make_table
from .svg import COLOURS, SETS, Chart
from .tables import Results, where
from .words import BASELINE, FEW, PERCENT, UPSIDE_DOWN, called, listed, number, over, percent, shown, value_text

# Simple scores, in the order of preference. Another score is recommended only if it is shown to be better.
SIMPLE = (BASELINE, "energy", "max_logit", "entropy")
# What the first table and the ROC curves show; the tables behind a click have every score.
MAIN_SCORES = (BASELINE, "energy", "gen", "tempered_dominance", "gap")
ROC_SCORES = (BASELINE, "energy", "log_p_value", "structural_score")
# A score that is less simple than the baseline is recommended if its AUROC is higher by more than this.
WORTH = 0.01
# How many scores of users, that is of detectors and columns, are in the first table and among the ROC curves.
OWN = 3


def unfamiliar(results: Results) -> Section:
    """How well each score tells the test set from each OOD set."""
    title, sets = "Which score finds the unfamiliar?", results.ood["ood"].unique()
    if not len(sets):
        return Section(title, ["No out-of-distribution set was given, so nothing is said of detection."])
    table = claimed(results)
    of_all, of_rivals = over(len(table)), over(int((table["score"] != BASELINE).sum()))
    groups: dict[str, list[str]] = {}
    sentences, charts, tables, more = [], {}, [], {}
    for place, name in enumerate(sets):
        rows, whole = where(table, ood=name), where(results.ood, ood=name)
        own = whole[whole["kind"] != "score"].sort_values("auroc", ascending=False, kind="stable")["score"][:OWN]
        helps = (rows["above"] > 0).any()
        groups.setdefault(choose(rows)["score"] if helps else "", []).append(f"“{name}”")
        sentences += advice(name, rows, of_all, of_rivals) if len(sets) <= FEW and len(rows) else []
        main = whole[whole["score"].isin([*MAIN_SCORES, *own])].sort_values("fpr95", kind="stable")
        areas = [cell._replace(small="") for cell in cells(main, "auroc", 3)]
        columns = {
            "score": score_names(main),
            "caught at 5 % false alarms": caught_cells(main, bars=True),
            "AUROC": areas,
        }
        tables.append(make_table(f"{results.known} against {name}", columns, "bars"))
        more[f"All {len(whole)} scores on {name}, with intervals"] = [score_table(results, name, whole)]
        if place < SETS:
            charts["roc" if not place else f"roc-{place + 1}"] = roc_chart(results, whole, (*ROC_SCORES, *own))
    if len(sets) > FEW:
        hopeless = groups.pop("", [])
        choices = "; ".join(f"{called(score)} on {listed(group)}" for score, group in groups.items())
        if choices:
            sentences.append(f"Scores to use, a simple one unless another is shown to be better{of_rivals}: {choices}.")
        if hopeless:
            sentences.append(f"On {listed(hopeless)} no score is shown to do better than chance{of_all}.")
    return Section(title, sentences, charts, tables, more)


def claimed(results: Results) -> Any:
    """The scores that are the right way up, with two more columns, each 1, 0 or -1 as in `shown`.

    `above` compares the AUROC with 0.5, and `better` compares it with the AUROC of the baseline. Both are corrected for
    the number of all rows.
    """
    table = results.ood[~results.ood["upside_down"].astype(bool) & results.ood["auroc"].notna()]
    better = shown(table[table["score"] != BASELINE], "versus_msp").reindex(table.index, fill_value=0)
    return table.assign(above=shown(table, "auroc", 0.5), better=better)


def choose(table: Any) -> Any:
    """The row of the score to use: a simple score, unless another is shown to be better by more than a little."""
    best = table.loc[table["auroc"].idxmax()]
    for score in SIMPLE:
        for _, row in where(table, score=score).iterrows():
            within = row["auroc"] >= min(best["auroc"], best["auroc_low"])
            if score != BASELINE and within and row["better"] > 0:
                return row
            if score == BASELINE and (best["better"] <= 0 or (within and best["versus_msp"] <= WORTH)):
                return row
    return best


def caught_text(row: Any) -> str:
    """What a score catches of an OOD set: 1 - FPR95, with its interval."""
    return f"{percent(1 - row['fpr95'])} at 5 % false alarms (AUROC {value_text(row, 'auroc')})"


def advice(name: str, table: Any, of_all: str, of_rivals: str) -> list[str]:
    """The sentences about one set.

    Args:
        name: the set.
        table: its rows of `claimed`.
        of_all: a note about the number of all comparisons.
        of_rivals: a note about the number of comparisons with the baseline.
    """
    best, chosen, plain = table.loc[table["auroc"].idxmax()], choose(table), where(table, score=BASELINE)
    first = called(best["score"])
    if not (table["above"] > 0).any():
        return [f"On “{name}” no score is shown to do better than chance{of_all}: {first} has {caught_text(best)}."]
    said = [f"On “{name}” use {called(chosen['score'])}: it catches {caught_text(chosen)}."]
    if chosen["score"] != best["score"] and not (chosen["score"] == BASELINE and best["better"] > 0):
        said.append(f"No score is shown to do better{of_rivals}; the highest is {first}, {caught_text(best)}.")
    elif chosen["score"] != best["score"]:
        difference = value_text(best, "versus_msp", sign=True)
        said.append(f"The AUROC of {first} is higher by {difference}, which is more than chance{of_rivals} but little.")
    elif best["score"] != BASELINE and len(plain):
        said.append(f"Confidence catches {caught_text(plain.iloc[0])}{of_rivals}.")
    return said


def score_names(table: Any) -> list[Cell]:
    """The names of scores, with their keys."""
    found = []
    for key, turned in zip(table["score"], table["upside_down"], strict=True):
        small = "" if called(key).casefold() == key.casefold().replace("_", " ") else key
        found.append(Cell(called(key), small, mark=UPSIDE_DOWN if turned else ""))
    return found


def caught_cells(table: Any, *, bars: bool = False) -> list[Cell]:
    """What is caught at 5 % false alarms; the best is emphasised."""
    caught, low, high = (1 - table[f"fpr95{end}"] for end in ("", "_high", "_low"))
    turned = table.assign(caught=caught, caught_low=low, caught_high=high)
    found = cells(turned, "caught", best=caught.max(), **PERCENT)
    return [cell._replace(bar=share) for cell, share in zip(found, caught, strict=True)] if bars else found


def score_table(results: Results, name: str, table: Any) -> Table:
    """Every score on one OOD set."""
    versus = cells(table, "versus_msp", sign=True)
    versus = [NOTHING if score == BASELINE else cell for score, cell in zip(table["score"], versus, strict=True)]
    both = where(results.overlaps, set=name, suspicious=True)
    shared = f"; {both.iloc[0]['shared']:,} samples are in both sets" if len(both) else ""
    return make_table(
        f"{results.known} (positive) against {name}, with 95 % intervals. Caught is 1 − FPR95{shared}",
        {
            "score": score_names(table),
            "AUROC": cells(table, "auroc", best=table["auroc"].max()),
            "caught at 5 %": caught_cells(table),
            "AUPR": cells(table, "aupr", best=table["aupr"].max()),
            "AUROC vs confidence": versus,
        },
    )


def roc_chart(results: Results, table: Any, scores: Sequence[str]) -> tuple[Chart, str]:
    """ROC curves of some scores on one OOD set; that of p* often lies on that of confidence, so it is dashed."""
    name, parts = table.iloc[0]["ood"], []
    chart = Chart(f"{name} kept", f"{results.known} kept")
    chart.rule((0, 1), (0, 1))
    for score, colour in zip(scores, cycle(COLOURS), strict=False):
        curve, row = where(results.roc, ood=name, score=score), where(table, score=score)
        if len(curve):
            mark = f", {UPSIDE_DOWN}" if row.iloc[0]["upside_down"] else ""
            parts.append(f"{called(score)} {number(row.iloc[0]['auroc'], 3)}{mark}")
            style = 'stroke-dasharray="5 4"' if score == "log_p_value" else ""
            chart.line(curve["fpr"], curve["tpr"], colour, parts[-1], style)
    return chart, f"ROC curves, {results.known} against {name}: AUROC {', '.join(parts)}."
