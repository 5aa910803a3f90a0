"""Which score finds the unfamiliar: what each score catches, and which one to use."""

from typing import Any

from .parts import NOTHING, Cell, Section, Table, cells, make_table
from .svg import COLOURS, SETS, Chart
from .tables import Results, where
from .words import (
    BASELINE,
    FEW,
    MAIN_SCORES,
    ROC_SCORES,
    SIMPLE,
    UPSIDE_DOWN,
    called,
    distinct_names,
    listed,
    number,
    over,
    percent,
    quoted,
    shown,
    value_text,
)

# A score that is less simple than the baseline is recommended if its AUROC is higher by more than this.
WORTH = 0.01
# How many scores of users, that is of detectors and columns, are in the first table and among the ROC curves.
OWN = 3


def unfamiliar(results: Results) -> Section:
    """How well each score tells the test set from each OOD set."""
    title, sets = "Which score finds the unfamiliar?", distinct_names(results.ood["ood"])
    if not sets:
        return Section(title, ["No out-of-distribution set was given, so nothing is said of detection."])
    table = claimed(results)
    of_all, of_rivals = over(len(table)), over(int((table["score"] != BASELINE).sum()))
    groups: dict[str, list[str]] = {}
    sentences, charts, tables, more = [], {}, [], {}
    for place, name in enumerate(sets):
        rows, whole = where(table, ood=name), where(results.ood, ood=name)
        helps = (rows["above"] > 0).any()
        groups.setdefault(choose(rows)["score"] if helps else "", []).append(quoted(name))
        sentences += advice(name, rows, of_all, of_rivals) if len(sets) <= FEW and len(rows) else []
        main = whole[whole["score"].isin([*MAIN_SCORES, *own_scores(whole)])].sort_values("fpr95", kind="stable")
        tables.append(caught_table(main, f"{results.known} against {name}"))
        more[f"All {len(whole)} scores on {name}, with intervals"] = [score_table(results, name, whole)]
        if place < SETS:
            charts["roc" if not place else f"roc-{place + 1}"] = roc_chart(results, name, whole)
    if len(sets) > FEW:
        hopeless = groups.pop("", [])
        choices = "; ".join(f"{called(score)} on {listed(group)}" for score, group in groups.items())
        if choices:
            sentences.append(f"Scores to use, a simple one unless another is shown to be better{of_rivals}: {choices}.")
        if hopeless:
            sentences.append(f"On {listed(hopeless)} no score is shown to do better than chance{of_all}.")
    return Section(title, sentences, charts, tables, more)


def own_scores(table: Any) -> list[str]:
    """The best of the scores that users add, on one OOD set."""
    own = table[table["kind"] != "score"].sort_values("auroc", ascending=False, kind="stable")
    return list(own["score"][:OWN])


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
        return [
            f"On {quoted(name)} no score is shown to do better than chance{of_all}: {first} has {caught_text(best)}."
        ]
    use = f"On {quoted(name)} use {called(chosen['score'])}: it catches {caught_text(chosen)}."
    if chosen["score"] == best["score"]:
        beaten = [f"Confidence catches {caught_text(plain.iloc[0])}{of_rivals}."] if len(plain) else []
        return [use, *beaten] if best["score"] != BASELINE else [use]
    if chosen["score"] == BASELINE and best["better"] > 0:
        difference = value_text(best, "versus_msp", sign=True)
        return [
            use,
            f"The AUROC of {first} is higher by {difference}, which is more than chance{of_rivals} but little.",
        ]
    return [use, f"No score is shown to do better{of_rivals}; the highest is {first}, {caught_text(best)}."]


def score_names(table: Any) -> list[Cell]:
    """The names of scores, with their keys."""
    found = []
    for _, row in table.iterrows():
        name, key = called(row["score"]), row["score"]
        small = "" if name.casefold() == key.casefold().replace("_", " ") else key
        found.append(Cell(name, small, mark=UPSIDE_DOWN if row["upside_down"] else ""))
    return found


def caught_cells(table: Any, *, bars: bool = False) -> list[Cell]:
    """What is caught at 5 % false alarms; the best is emphasised."""
    turned = table.assign(
        caught=1 - table["fpr95"], caught_low=1 - table["fpr95_high"], caught_high=1 - table["fpr95_low"]
    )
    found = cells(turned, "caught", 1, scale=100, unit=" %", best=turned["caught"].max())
    return [cell._replace(bar=share) for cell, share in zip(found, turned["caught"], strict=True)] if bars else found


def caught_table(table: Any, caption: str) -> Table:
    """What the main scores catch."""
    columns = {"score": score_names(table), "caught at 5 % false alarms": caught_cells(table, bars=True)}
    areas = cells(table, "auroc", 3)
    columns["AUROC"] = [cell._replace(small="") for cell in areas]
    return make_table(caption, columns, "bars")


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


def roc_chart(results: Results, name: str, table: Any) -> tuple[Chart, str]:
    """ROC curves of the main scores; the curve of p* often lies on that of confidence, so it is dashed."""
    chart = Chart(f"{name} kept", f"{results.known} kept")
    chart.rule((0, 1), (0, 1))
    parts = []
    for place, score in enumerate((*ROC_SCORES, *own_scores(table))):
        curve, row = where(results.roc, ood=name, score=score), where(table, score=score)
        if len(curve):
            mark = f", {UPSIDE_DOWN}" if row.iloc[0]["upside_down"] else ""
            parts.append(f"{called(score)} {number(row.iloc[0]['auroc'], 3)}{mark}")
            style = 'stroke-dasharray="5 4"' if score == "log_p_value" else ""
            chart.line(curve["fpr"], curve["tpr"], COLOURS[place % len(COLOURS)], parts[-1], style)
    return chart, f"ROC curves, {results.known} against {name}: AUROC {', '.join(parts)}."
