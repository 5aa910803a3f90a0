"""Several reports side by side: what holds for every model, and what for one alone."""

import json
import os
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from .contrast import BEYOND_NOTE, NOTE, TITLE, beyond_rows, beyond_sentence, rows
from .layout import Table, headline
from .page import document, figure_html, list_html, sentences_html, symbols_html, table_html
from .report import Report, picture, strict, write
from .symbols import GLOSSARY, Introductions
from .verdict import key_sentences

INDEX = "index.html"


class Comparison:
    """Reports of several models, each on its own data.

    Args:
        reports: by the name of the model.
        beyond: what `beyond_confidence` found, by the name of the model, for those that it was asked about.

    >>> from torch_boc import zoo
    >>> from torch_boc.evaluation import evaluate
    >>> entry = zoo.load("resnet20-cifar10")
    >>> comparison = Comparison({"ResNet-20": evaluate(entry.id, entry.ood, replicates=20, trial_counts=(100,))})
    >>> [[cell.text for cell in row] for row in comparison.table().rows[:3]]
    [['classes', '10'], ['OOD set', 'svhn'], ['accuracy', '0.9173']]
    """

    def __init__(self, reports: Mapping[str, Report], beyond: Mapping[str, Any] | None = None) -> None:
        if not reports:
            raise ValueError("expected at least one report to compare, got none")
        self.reports, self.beyond = dict(reports), dict(beyond or {})
        unknown = [name for name in self.beyond if name not in self.reports]
        if unknown:
            raise ValueError(f"expected beyond for models among {', '.join(self.reports)}, got {unknown[0]!r}")

    def table(self) -> Table:
        """A column for each model; rows that no model has a value for are left out."""
        found = [[title, *(cell(report.results) for report in self.reports.values())] for title, cell in rows()]
        found += [[title, *(cell(self.beyond.get(name)) for name in self.reports)] for title, cell in beyond_rows()]
        present = [row for row in found if any(cell.text != "–" for cell in row[1:])]
        return Table("Each model on its own test set, against its own OOD set", ["", *self.reports], present)

    def sentences(self, name: str) -> list[str]:
        """What is to be said of one model beside the table."""
        said = key_sentences(self.reports[name].results)
        return [*said, beyond_sentence(self.beyond[name])] if name in self.beyond else said

    def to_json(self) -> str:
        """An object by the names of the models, each as `Report.to_json` has it, with `beyond` among its tables."""
        content = {name: report.content() for name, report in self.reports.items()}
        for name, table in self.beyond.items():
            content[name]["tables"]["beyond"] = table.to_dict("list")
        return json.dumps(strict(content), ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write index.html, with everything side by side, and each report into a folder of its own.

        Returns:
            The paths, index.html first.
        """
        folder, paths = Path(folder), []
        drawn: dict[str, dict[str, Any]] = {}
        for name, report in self.reports.items():
            figures = report.figures()
            paths += report.save(folder / slug(name), figures, up=f"../{INDEX}")
            drawn[name] = {key: picture(figures[key]) for key in ("coherence", "roc") if key in figures}
        return [write(folder / INDEX, self._page(drawn).encode()), *paths]

    def _page(self, drawn: Mapping[str, Mapping[str, Any]]) -> str:
        notes = "".join(f"<p>{note}</p>\n" for note in (NOTE, *([BEYOND_NOTE] if self.beyond else [])))
        parts = [f"<header><h1>{TITLE}</h1></header>"]
        table = self.table()
        words = [*(row[0].text for row in table.rows), *(cell.small for row in table.rows for cell in row)]
        reader = Introductions()
        legend = symbols_html(reader.of(words))
        parts.append(f"<section class='compare'>\n{notes}{table_html(table)}\n{legend}</section>")
        parts += [self._section(name, report, drawn[name], reader) for name, report in self.reports.items()]
        return document(TITLE, [*parts, list_html("Symbols", GLOSSARY)])

    def _section(self, name: str, report: Report, drawn: Mapping[str, Any], reader: Introductions) -> str:
        results, title = report.results, str(report.results.settings.get("title", ""))
        figures = "\n".join(figure_html(key, results, image) for key, image in drawn.items())
        return (
            f"<section>\n<h2><a href='{slug(name)}/report.html'>{escape(name)}</a></h2>\n"
            + (f"<p>{escape(title)}</p>\n" if title else "")
            + f"<p class='headline'>{escape(headline(results))}</p>\n{sentences_html(self.sentences(name))}\n"
            f"{symbols_html(reader.of(self.sentences(name)))}"
            f"<div class='figures'>\n{figures}\n</div>\n</section>"
        )


def slug(name: str) -> str:
    """A name as a folder."""
    return "".join(char if char.isalnum() or char in "-._" else "-" for char in name).strip(".") or "report"
