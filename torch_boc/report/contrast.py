"""What several reports show beside the table of all models: every OOD set, paired differences, and one figure."""

from collections.abc import Mapping
from typing import Any

from ..plots import CYCLE, GREY
from .axes import SETS, figure_text, finish, panels
from .choices import BASELINE, COMPARED_SCORES, PAPER_SCORE
from .parts import NOTHING, UPSIDE_DOWN, Cell, Table, value_cell
from .results import Results
from .words import distinct_names, interval_text, number, symbol

MARKERS = "os^Dv<>"


def all_ood_sets(models: Mapping[str, Results]) -> list[str]:
    """The names of the OOD sets of all models, in the order in which they come."""
    return distinct_names([name for results in models.values() for name in results.ood["ood"]])


def ood_contrast(models: Mapping[str, Results]) -> list[Table]:
    """A table of AUROC for each OOD set, if a model has more than one; the table of all models has the first set."""
    if all(len(distinct_names(results.ood["ood"])) < 2 for results in models.values()):
        return []
    return [_ood_table(models, name) for name in all_ood_sets(models)]


def _ood_table(models: Mapping[str, Results], ood: str) -> Table:
    tables = [results.ood[results.ood["ood"] == ood] for results in models.values()]
    own = distinct_names([score for table in tables for score in table[table["kind"] != "score"]["score"]])
    rows = []
    for score in dict.fromkeys((*COMPARED_SCORES, *own)):
        cells = [value_cell(table[table["score"] == score], "auroc") for table in tables]
        if any(cell != NOTHING for cell in cells):
            rows.append([Cell(symbol(score), mark=UPSIDE_DOWN if score == PAPER_SCORE else ""), *cells])
    return Table(f"AUROC against {ood}, with 95 % intervals", ["score", *models], rows)


def difference_tables(differences: Any) -> list[Table]:
    """The paired differences from the first model: a table for accuracy and ECE, and one for each OOD set."""
    groups = {"": differences[differences["ood"] == ""]}
    groups |= {name: differences[differences["ood"] == name] for name in distinct_names(differences["ood"])}
    return [_difference_table(name, rows) for name, rows in groups.items() if len(rows)]


def _difference_table(ood: str, table: Any) -> Table:
    models, than = distinct_names(table["model"]), table.iloc[0]["than"]
    rows = []
    for what in distinct_names(table["what"]):
        part = table[table["what"] == what].set_index("model")
        cells = [_difference(part.loc[model]) if model in part.index else NOTHING for model in models]
        rows.append([Cell(symbol(what), mark=UPSIDE_DOWN if what == PAPER_SCORE else ""), *cells])
    about = f"AUROC against {ood}" if ood else "Accuracy (higher is better) and ECE (lower is better)"
    caption = f"{about}: each model minus {than}, on the same samples, with 95 % intervals; bold if beyond 0"
    return Table(caption, ["score" if ood else "number", *models], rows)


def _difference(row: Any) -> Cell:
    """A difference, emphasised if its interval is beyond 0."""
    beyond = row["difference_low"] > 0 or row["difference_high"] < 0
    return Cell(number(row["difference"], sign=True), interval_text(row, "difference", sign=True), bool(beyond))


def contrast_figure(models: Mapping[str, Results]) -> Any:
    """The AUROC of confidence on each OOD set, or the ECE of each model if there is none; None without numbers."""
    tables = {ood: {k: x.ood[(x.ood["ood"] == ood) & (x.ood["score"] == BASELINE)] for k, x in models.items()}
              for ood in all_ood_sets(models)[:SETS]}  # fmt: skip
    column, title = "auroc", f"AUROC of {symbol(BASELINE)}"
    if not tables:
        plain = {k: x.calibration[x.calibration["method"] == symbol(BASELINE)] for k, x in models.items()}
        tables, column, title = {"": plain}, "ece", f"ECE of {symbol(BASELINE)}"
    if not any(len(rows) for found in tables.values() for rows in found.values()):
        return None
    figure, axes = panels(len(tables), (4.8, 1.2 + 0.42 * len(models)))
    for axis, (ood, found) in zip(axes, tables.items(), strict=True):
        for place, rows in enumerate(found.values()):
            if len(rows):
                row, colour = rows.iloc[0], CYCLE[place % len(CYCLE)]
                axis.plot([row[f"{column}_low"], row[f"{column}_high"]], [place, place], color=colour, linewidth=2)
                axis.plot(row[column], place, MARKERS[place % len(MARKERS)], color=colour)
        axis.set_yticks(range(len(found)), [figure_text(name) for name in found])
        axis.set(xlabel=f"{title} against {figure_text(ood)}" if ood else title, ylim=(len(found) - 0.5, -0.5))
        if column == "auroc":
            axis.axvline(0.5, color=GREY, linewidth=1, linestyle=":")
    return finish(figure, axes, None)
