"""Errors by class, the most frequent confusions, and the least confident samples."""

from typing import Any

from .elements import Cell, Section, Table, cells, make_table
from .format import PERCENT, comparisons_note, counted, join_words, percent, small_number
from .results import Results

# How many classes and confusions are shown at once, and how many predictions a class shown has at least.
WORST, CONFUSIONS, FEWEST = 5, 3, 10


def error_section(results: Results) -> Section | None:
    """The classes with the lowest precision, and the most frequent confusions."""
    table, confusions = results.classes, results.confusions
    if not len(table):
        return None
    wrong, confused = int((table["samples"] * (1 - table["precision"])).round().sum()), []
    pairs = confusions.assign(**{x: confusions[x].map(results.class_name) for x in ("target", "prediction")})
    for _, row in pairs.head(CONFUSIONS).iterrows():
        confused.append(f"{row['target']} predicted as {row['prediction']} {counted(row['samples'], 'time')}")
    lead = f"{counted(wrong, 'error')}: {join_words(confused)}." if confused else "No prediction is wrong."
    uneven = table[table["sign"] != 0].sort_values("excess", key=abs, ascending=False)
    sentences = [lead] + ([uneven_text(results, uneven, len(table))] if len(uneven) else [])
    worst = table[table["samples"] >= FEWEST].sort_values("precision", kind="stable")[:WORST]
    frequent = {"target": list(pairs["target"]), "prediction": list(pairs["prediction"])}
    frequent |= {"times": cells(pairs, "samples", 0)}
    folded = [class_table(results, table, "All classes"), make_table("The most frequent confusions", frequent)]
    more = {f"All {len(table):,} classes, and the most frequent confusions": folded}
    return Section("Errors by class", sentences, tables=[class_table(results, worst, "Lowest precision")], more=more)


def uneven_text(results: Results, uneven: Any, classes: int) -> str:
    """The class whose precision and confidence differ most, of those where chance does not explain it."""
    worst = uneven.iloc[0]
    name, precision = results.class_name(int(worst["prediction"])), percent(worst["precision"])
    most = f"{name} has a precision of {precision} at a mean confidence of {percent(worst['confidence'])}"
    return f"Miscalibrated by class: {len(uneven)} of {classes:,}{comparisons_note(classes)}; {most}."


def class_table(results: Results, table: Any, caption: str) -> Table:
    """The precision of each predicted class, and its confidence."""
    names = zip(map(results.class_name, table["prediction"]), table["samples"], strict=True)
    columns: dict[str, Any] = {"prediction": [Cell(name, f"n = {n:,}") for name, n in names]}
    columns["precision"] = cells(table, "precision", **PERCENT)
    columns["confidence"] = cells(table, "confidence", **PERCENT)
    columns |= {"calibrated": cells(table, "calibrated", **PERCENT)} if table["calibrated"].notna().any() else {}
    return make_table(caption, columns)


def sample_section(results: Results) -> Section | None:
    """The least confident samples, with their names."""
    table = results.samples.sort_values("log_odds", kind="stable")
    if not len(table):
        return None
    names = []
    for name, group, row in zip(table["name"], table["set"], table["row"], strict=True):
        names.append(Cell(name, f"{group} row {row:,}") if name else Cell(f"{group} row {row:,}"))
    columns: dict[str, Any] = {
        "sample": names,
        "prediction": list(map(results.class_name, table["prediction"])),
        "target": list(map(results.class_name, table["target"])),
        "confidence": cells(table, "confidence", **PERCENT),
        "Δ": cells(table, "gap", 3),
        "p-value": list(map(small_number, table["p_value"])),
    }
    caption = f"The {table.groupby('set').size().max()} least confident samples of each set; p-values are conformal"
    return Section("Least confident samples", [], tables=[make_table(caption, columns, kind="sortable")])
