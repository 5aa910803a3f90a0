"""What a report shows as tables: the same cells for the HTML page and for Markdown."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from .results import Results
from .words import interval, names, number, percent, small_number, symbol

LEAKING = "looks like training data"
SHARING = "has test samples"
UPSIDE_DOWN = "upside down"


class Cell(NamedTuple):
    """A value, an interval or a name in small type, emphasis, and a mark such as "upside down"."""

    text: str
    small: str = ""
    best: bool = False
    mark: str = ""


class Table(NamedTuple):
    """A caption, titles of the columns, and rows whose first cell names the row."""

    caption: str
    columns: list[str]
    rows: list[list[Cell]]


def known_set(results: Results) -> str:
    """The name of the in-distribution set."""
    known = results.gaps[results.gaps["kind"] == "id"]["set"]
    return str(known.iloc[0]) if len(known) else next(iter(results.settings["samples"]), "test")


def suspicious_splits(results: Results) -> list[str]:
    """The calibration splits that look like training data."""
    return names(results.leaks[results.leaks["suspicious"].astype(bool)]["split"])


def sharing_splits(results: Results) -> list[str]:
    """The calibration splits that have samples of the test set in them."""
    table = results.overlaps
    return names(table[(table["kind"] == "calibration") & table["suspicious"].astype(bool)]["set"])


def split_mark(results: Results, split: str) -> str:
    """What is wrong with a calibration split, or ""."""
    if split in sharing_splits(results):
        return SHARING
    return LEAKING if split in suspicious_splits(results) else ""


def headline(results: Results) -> str:
    """The sets, their sizes and the settings in a line."""
    settings = results.settings
    parts = [", ".join(f"{name} {count:,}" for name, count in settings["samples"].items())]
    accuracy = float(settings.get("accuracy", math.nan))
    if not math.isnan(accuracy):
        parts.append(f"accuracy {number(accuracy)}")
    return " · ".join([*parts, f"{settings['classes']} classes", f"k = {settings['trials']}"])


def calibration_table(results: Results) -> Table | None:
    """ECE, NLL and Brier score of each method, the lowest that is honest emphasised."""
    table = results.calibration
    if not len(table) or not table["ece"].notna().any():
        return None
    borrowed, sharing = table["method"].isin(("isotonic", "BoC")), table["split"].isin(sharing_splits(results))
    columns = (table["ece"], table["nll"].mask(borrowed), table["brier"])
    best = [_is_best(column.mask(sharing), min) for column in columns]
    rows = []
    for i, (_, row) in enumerate(table.iterrows()):
        split = str(row["split"])
        method = Cell(str(row["method"]), f"fitted on {split}" if split else "", mark=split_mark(results, split))
        flagged = zip(("ece", "nll", "brier"), best, strict=True)
        values = [Cell(number(row[name]), interval(row, name), flags[i]) for name, flags in flagged]
        if borrowed.iloc[i]:
            values[1] = Cell("as MSP")
        values[1:1] = [Cell(number(row["ece_chance"])), _versus_msp(row)]
        rows.append([method, *values, Cell(number(row["accuracy"])), Cell(number(row["temperature"], 3))])
    caption = f"Calibration on {known_set(results)}, with 95 % intervals; lower errors are better"
    return Table(caption, ["method", "ECE", "by chance", "ECE vs MSP", "NLL", "Brier", "accuracy", "T"], rows)


def _versus_msp(row: Any) -> Cell:
    if row["method"] == "MSP":
        return Cell("–")
    return Cell(number(row["ece_versus_msp"], sign=True), interval(row, "ece_versus_msp", sign=True))


def leak_table(results: Results) -> Table | None:
    """The accuracy of each calibration split against that of the test set, and the samples that both have."""
    shared = results.overlaps[results.overlaps["kind"] == "calibration"].set_index("set")["shared"]
    rows = [
        [
            Cell(str(row["split"]), mark=split_mark(results, row["split"])),
            Cell(f"{int(row['samples']):,}"),
            Cell(f"{int(shared[row['split']]):,}" if row["split"] in shared else "–"),
            Cell(number(row["accuracy"])),
            Cell(number(row["test_accuracy"])),
            Cell(number(row["z"], 1, sign=True)),
            Cell(small_number(row["p_value"])),
        ]
        for _, row in results.leaks.iterrows()
    ]
    caption = "Calibration splits: is the network more accurate there than on the test set, and do they share samples?"
    return Table(caption, ["split", "samples", "shared", "accuracy", "on test", "z", "p-value"], rows) if rows else None


def ood_tables(results: Results) -> list[Table]:
    """For each OOD set AUROC, FPR at 95 % TPR and AUPR of each score, the best emphasised."""
    return [_ood_table(results, name) for name in names(results.ood["ood"])]


def _ood_table(results: Results, name: str) -> Table:
    table = results.ood[results.ood["ood"] == name]
    kinds = (("auroc", max), ("fpr95", min), ("aupr", max))
    best = [_is_best(table[column], choose) for column, choose in kinds]
    rows = []
    for i, (_, row) in enumerate(table.iterrows()):
        called, mark = symbol(row["score"]), UPSIDE_DOWN if row["upside_down"] else ""
        values = [
            Cell(number(row[column]), interval(row, column), flags[i])
            for (column, _), flags in zip(kinds, best, strict=True)
        ]
        difference = Cell(number(row["versus_msp"], sign=True), interval(row, "versus_msp", sign=True))
        itself = row["score"] == "msp"
        small = row["score"] if called.casefold() != row["score"].casefold() else ""
        rows.append([Cell(called, small, mark=mark), *values, Cell("–") if itself else difference])
    caption = f"{known_set(results)} (positive) against {name}, with 95 % intervals{_shared(results, name)}"
    return Table(caption, ["score", "AUROC", "FPR95", "AUPR", "AUROC vs MSP"], rows)


def _shared(results: Results, name: str) -> str:
    """What is to be said of an OOD set that has samples of the test set in it."""
    table = results.overlaps[(results.overlaps["set"] == name) & results.overlaps["suspicious"].astype(bool)]
    return f"; {table.iloc[0]['shared']:,} samples are in both sets" if len(table) else ""


def gap_table(results: Results) -> Table | None:
    """What the gap is made of in each set: the part that confidence forces, and the rest."""
    titles = ["set", "p̂", "q̄", "Δ", "forced", "free", "forced share", "R²", "ρ", "rejected", "p-value"]
    rows = []
    for _, row in results.gaps.iterrows():
        columns = ["confidence", "dominance", "gap", "forced_gap", "free_gap"]
        rest = [number(row[name], 3) for name in ("r2", "concentration", "rejection_rate", "p_value")]
        values = [*(number(row[name]) for name in columns), percent(forced_share(row)), *rest]
        rows.append([Cell(str(row["set"]), f"{int(row['samples']):,} samples"), *map(Cell, values)])
    return Table("The coherence gap Δ = q̄ − p̂ and its parts: means over each set", titles, rows) if rows else None


def forced_share(row: Any) -> float:
    """The share of the mean gap that confidence forces; NaN if there is no gap."""
    return float(row["forced_gap"] / row["gap"]) if row["gap"] > 0 else math.nan


def trial_table(results: Results) -> Table | None:
    """ECE, and the AUROC of the paper's score, by the number of flips."""
    table = results.trials
    variants, sets = list(dict.fromkeys(table["variant"])), names(table["ood"])
    wanted: list[tuple[str, str, str | None]] = []
    if table["ece"].notna().any():
        wanted += [(f"ECE, {variant}", variant, None) for variant in variants]
    wanted += [(f"AUROC on {name}, {variant}", variant, name) for name in sets for variant in variants]
    rows = [
        [Cell(str(int(k))), *(Cell(_at(table, k, variant, name)) for _, variant, name in wanted)]
        for k in dict.fromkeys(table["trials"])
    ]
    caption = "Number of flips k: ECE of BoC and AUROC of the paper’s score (upside down)"
    return Table(caption, ["k", *(title for title, _, _ in wanted)], rows) if wanted else None


def _at(table: Any, k: float, variant: str, name: str | None) -> str:
    rows = table[(table["trials"] == k) & (table["variant"] == variant)]
    column = rows["ece"] if name is None else rows[rows["ood"] == name]["auroc"]
    return number(float(column.iloc[0])) if len(column) else "–"


def _is_best(column: Any, choose: Any) -> Sequence[bool]:
    """Which values are the best as they are printed, so that equal numbers are emphasised alike."""
    rounded = column.astype(float).round(4)
    best = choose(rounded.dropna(), default=math.nan)
    return [value == best for value in rounded]
