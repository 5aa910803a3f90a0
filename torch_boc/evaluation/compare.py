"""Several reports side by side: what holds for every model, and what for one alone."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from .layout import Cell, Table, forced_share, headline, suspicious_splits
from .page import document, figure_html, table_html
from .report import Report, picture, write
from .results import Results
from .words import interval, number, percent, symbol

TITLE = "Bag-of-Coins: side by side"
SCORES = ("msp", "energy", "logit_gap", "p_value", "gap", "concentration", "structural_score", "odin", "mahalanobis")
Row = tuple[str, Callable[[Results], Cell]]


class Comparison:
    """Reports of several models, each on its own data.

    Args:
        reports: by the name of the model.

    >>> from torch_boc import zoo
    >>> from torch_boc.evaluation import evaluate
    >>> entry = zoo.load("resnet20-cifar10")
    >>> comparison = Comparison({"ResNet-20": evaluate(entry.id, entry.ood, replicates=20, trial_counts=(100,))})
    >>> comparison.table().columns, [cell.text for cell in comparison.table().rows[0]]
    (['', 'ResNet-20'], ['accuracy', '0.9173'])
    """

    def __init__(self, reports: Mapping[str, Report]) -> None:
        if not reports:
            raise ValueError("expected at least one report to compare, got none")
        self.reports = dict(reports)

    def table(self) -> Table:
        """A column for each model; rows that no model has a number for are left out."""
        rows = [[Cell(title), *(cell(report.results) for report in self.reports.values())] for title, cell in _rows()]
        present = [row for row in rows if any(cell.text != "–" for cell in row[1:])]
        return Table("Each model on its own test set, against its own OOD set", ["", *self.reports], present)

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write index.html, with everything side by side, and each report into a folder of its own.

        Returns:
            The paths, index.html first.
        """
        folder, paths = Path(folder), []
        drawn: dict[str, dict[str, Any]] = {}
        for name, report in self.reports.items():
            figures = report.figures()
            paths += report.save(folder / _slug(name), figures)
            drawn[name] = {key: picture(figures[key]) for key in ("coherence", "roc") if key in figures}
        return [write(folder / "index.html", self._page(drawn).encode()), *paths]

    def _page(self, drawn: Mapping[str, Mapping[str, Any]]) -> str:
        parts = [f"<header><h1>{TITLE}</h1></header>", table_html(self.table())]
        for name, report in self.reports.items():
            results, title = report.results, escape(name)
            says = "\n".join(f"<li>{escape(sentence)}</li>" for sentence in report.verdict)
            figures = "\n".join(figure_html(key, results, image) for key, image in drawn[name].items())
            parts.append(
                f"<section>\n<h2><a href='{_slug(name)}/report.html'>{title}</a></h2>\n"
                f"<p>{escape(headline(results))}</p>\n"
                f"<ul>\n{says}\n</ul>\n<div class='figures'>\n{figures}\n</div>\n</section>"
            )
        return document(TITLE, parts)


def _rows() -> list[Row]:
    rows: list[Row] = [("accuracy", _accuracy)]
    for method in ("MSP", "temperature", "isotonic", "vector scaling", "BoC"):
        rows.append((f"ECE, {method}", partial(_calibrated, method)))
    for score in SCORES:
        rows.append((f"AUROC, {symbol(score)}", partial(_detected, score)))
    for title, kind in (("ID", "id"), ("OOD", "ood")):
        rows.append((f"mean Δ, {title}", partial(_gap, kind, _mean)))
        rows.append((f"forced by confidence, {title}", partial(_gap, kind, _share)))
    return rows


def _accuracy(results: Results) -> Cell:
    return Cell(number(float(results.settings["accuracy"])))


def _calibrated(method: str, results: Results) -> Cell:
    """The first row of a method, fitted on a split that does not look like training data if there is one."""
    table = results.calibration[results.calibration["method"] == method]
    honest = table[~table["split"].isin(suspicious_splits(results))]
    if not len(table):
        return Cell("–")
    row = (honest if len(honest) else table).iloc[0]
    fitted = f"fitted on {row['split']}" if row["split"] else interval(row, "ece")
    return Cell(number(row["ece"]), fitted)


def _detected(score: str, results: Results) -> Cell:
    table = results.ood[results.ood["score"] == score]
    return Cell(number(table.iloc[0]["auroc"]), interval(table.iloc[0], "auroc")) if len(table) else Cell("–")


def _gap(kind: str, show: Callable[[Any], str], results: Results) -> Cell:
    table = results.gaps[results.gaps["kind"] == kind]
    return Cell(show(table.iloc[0])) if len(table) else Cell("–")


def _mean(row: Any) -> str:
    return number(row["gap"])


def _share(row: Any) -> str:
    return f"{percent(forced_share(row))}, R² {number(row['r2'], 3)}"


def _slug(name: str) -> str:
    """A name as a folder."""
    return "".join(char if char.isalnum() or char in "-._" else "-" for char in name).strip(".") or "report"
