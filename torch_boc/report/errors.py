"""Where is it wrong: the worst classes, the most frequent confusions, and the samples to look at."""

from typing import Any

from .parts import Cell, Section, Table, cells, make_table
from .tables import Results
from .words import PERCENT, listed, small_number

# How many classes and confusions are shown at once, and how many predictions a class among the worst has at least.
WORST, CONFUSIONS, FEWEST = 5, 3, 10


def mistakes(results: Results) -> Section | None:
    """The classes that are wrong most often, and what is taken for what."""
    table, confusions = results.classes, results.confusions
    if not len(table):
        return None
    wrong, said = int((table["samples"] * (1 - table["right"])).round().sum()), []
    pairs = confusions.assign(**{x: confusions[x].map(results.class_name) for x in ("target", "prediction")})
    for _, row in pairs.head(CONFUSIONS).iterrows():
        said.append(f"{row['target']} is taken for {row['prediction']} {row['samples']:,} times")
    lead = f"Of {wrong:,} errors, {listed(said)}." if said else "No prediction is wrong."
    worst = table[table["samples"] >= FEWEST].sort_values("right", kind="stable")[:WORST]
    frequent = {"truth": list(pairs["target"]), "it says": list(pairs["prediction"])}
    frequent |= {"times": cells(pairs, "samples", 0)}
    folded = [class_table(results, table, "All classes"), make_table("The most frequent confusions", frequent)]
    more = {f"All {len(table):,} classes, and the most frequent confusions": folded}
    return Section("Where is it wrong?", [lead], tables=[class_table(results, worst, "The worst classes")], more=more)


def class_table(results: Results, table: Any, caption: str) -> Table:
    """How often the predictions of each class are right."""
    names = zip(map(results.class_name, table["prediction"]), table["samples"], strict=True)
    columns: dict[str, Any] = {"if it says": [Cell(name, f"n = {n:,}") for name, n in names]}
    columns["it is right"] = cells(table, "right", **PERCENT)
    columns["its confidence"] = cells(table, "confidence", **PERCENT)
    columns |= {"calibrated": cells(table, "calibrated", **PERCENT)} if table["calibrated"].notna().any() else {}
    return make_table(caption, columns)


def look(results: Results) -> Section | None:
    """The least sure samples, with their names."""
    table = results.samples.sort_values("log_odds", kind="stable")
    if not len(table):
        return None
    names = []
    for name, group, row in zip(table["name"], table["set"], table["row"], strict=True):
        names.append(Cell(name, f"{group} row {row:,}") if name else Cell(f"{group} row {row:,}"))
    columns: dict[str, Any] = {
        "sample": names,
        "it says": list(map(results.class_name, table["prediction"])),
        "truth": list(map(results.class_name, table["target"])),
        "confidence": cells(table, "confidence", **PERCENT),
        "Δ": cells(table, "gap", 3),
        "p-value": list(map(small_number, table["p_value"])),
    }
    caption = f"The {table.groupby('set').size().max()} least sure samples of each set; p-values are conformal"
    return Section("Which samples to look at", [], tables=[make_table(caption, columns, kind="sortable")])
