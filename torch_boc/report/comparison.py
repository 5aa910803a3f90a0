"""The reports of several models side by side, in one table and on one page."""

import json
import os
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from ..calibration import CALIBRATORS
from ..data.atomic import check_folder, printable
from .coherence import forced_share
from .confidence import CALLED, LEAKING, split_marks
from .document import PAGES, notebook
from .parts import NOTHING, Cell, Table, cells
from .report import FILES, Report, strict, write
from .tables import Results, frame, where
from .words import (
    COMPARED_SCORES,
    GLOSSARY,
    PAPER_SCORE,
    PERCENT,
    TESTED_LEVELS,
    UPSIDE_DOWN,
    called,
    distinct_names,
    listed,
    number,
    percent,
    short_percent,
    shown,
    value_text,
)

TITLE = "Bag-of-Coins: side by side"
NOTE = "With 95 % intervals. ECE: lower is better. AUROC: higher is better, and 0.5 is chance."
INDEX = "index.html"
# Names that no folder of a report may have: that of the page of all models, and the names of devices in Windows.
RESERVED_FOLDERS = (INDEX, "con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10)))
LONGEST_SLUG = 150  # bytes
# The figures of each model on the page of all models.
SHOWN = ("reliability", "coherence")


class Comparison:
    """Reports of several models, each on its own data.

    Args:
        reports: the reports by the names of the models.
        differences: a DataFrame of them, if the models share their samples; see `evaluation.compare`.

    >>> from torch_boc import zoo
    >>> from torch_boc.evaluation import evaluate
    >>> entry = zoo.load("resnet20-cifar10")
    >>> comparison = Comparison({"ResNet-20": evaluate(entry.id, entry.ood, replicates=20, trial_counts=(100,))})
    >>> [[cell.text for cell in row] for row in comparison.table().rows[:3]]
    [['classes', '10'], ['OOD set', 'svhn'], ['accuracy', '0.9173']]
    """

    def __init__(self, reports: Mapping[str, Report], differences: Any = None) -> None:
        if not reports:
            raise ValueError("expected at least one report to compare, got none")
        self.reports: dict[str, Report] = {}
        for name, report in reports.items():
            if not isinstance(name, str):
                raise TypeError(f"expected names of models as strings, got {name!r}")
            if printable(name) in self.reports:
                raise ValueError(f"expected names that differ when they are printed, got {name!r} twice")
            self.reports[printable(name)] = report
        self.differences = frame("differences") if differences is None else differences.copy()
        for column in ("model", "than", "ood"):
            self.differences[column] = self.differences[column].map(printable)
        for name in self.differences["model"]:
            if name not in self.reports:
                raise ValueError(f"expected differences of models among {', '.join(self.reports)}, got {name!r}")

    def table(self) -> Table:
        """A table with a column for each model. A row without any value is left out."""
        models = [contrast(report.results) for report in self.reports.values()]
        rows = []
        for title in dict.fromkeys(title for model in models for title in model):
            found = [model.get(title, NOTHING) for model in models]
            rows += [[title, *found]] if any(cell.text != "–" for cell in found) else []
        return Table(self._caption(), ["", *self.reports], rows)

    def _caption(self) -> str:
        """What the table of all models says of their test sets. Models with paired differences share their samples."""
        sharing = {*self.differences["model"], *self.differences["than"]}
        if not sharing:
            return "Each model on its own test set, against its own OOD set"
        if all(name in sharing for name in self.reports):
            return "All models on the same test set, each against its first OOD set"
        names = listed([name for name in self.reports if name in sharing])
        return f"Each model on its test set, against its first OOD set; {names} share their test set"

    def tables(self) -> list[Table]:
        """Further tables: paired differences, and the AUROC on every OOD set if a model has several."""
        return [*difference_tables(self.differences), *ood_contrast(self.reports)]

    def sentences(self, name: str) -> list[str]:
        """The sentences about one model: its finding, and the first of each section."""
        story = self.reports[name].story
        return [*story.warnings, *(section.sentences[0] for section in story.sections if section.sentences)]

    def conclusions(self) -> list[str]:
        """What the paired differences from the first model say: a sentence for each model that shares its samples."""
        found, table = [], where(self.differences, ood="")
        for name, rows in table.assign(shown=shown(table, "difference")).groupby("model", sort=False):
            said = []
            for _, row in rows.iterrows():
                better = (row["difference"] > 0) == (row["what"] == "accuracy")
                word = ("better" if better else "worse") if row["shown"] else "not shown to differ"
                said.append(f"{row['what']} {word}, {value_text(row, 'difference', 1, 100, sign=True)} points")
            found.append(f"{name} against {row['than']}, on the same samples: {'; '.join(said)}.")
        return found

    def to_json(self) -> str:
        """A JSON object with the report of each model, as in `Report.to_json`.

        The tables of a model include the `differences` from the first model, if there are any.
        """
        content = {name: report.content() for name, report in self.reports.items()}
        for name, rows in self.differences.groupby("model", sort=False):
            content[name]["tables"]["differences"] = rows.to_dict("list")
        return json.dumps(strict(content), ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write index.html, which shows all models side by side, and each report into a folder of its own.

        A folder has the name of its model, without characters that a folder cannot have. If two names are the same, or
        differ only in capitals, a number is added to the later one.

        Returns:
            The paths of all files, index.html first.
        """
        folder, places, paths = check_folder(folder, comparison_files(self.reports)), slugs(self.reports), []
        models = []
        for name, report in self.reports.items():
            paths += report.save(folder / places[name], up=f"../{INDEX}")
            figures = report.story.figures
            models.append(
                {
                    "name": name.strip() or places[name],
                    "link": f"{quote(places[name])}/report.html",
                    "story": report.story,
                    "sentences": self.sentences(name),
                    "drawn": [Markup(figures[key]) for key in SHOWN if key in figures],
                }
            )
        note = " ".join([*self.conclusions(), NOTE])
        page = PAGES.get_template("comparison.html.jinja").render(
            title=TITLE, note=note, tables=[self.table(), *self.tables()], models=models, glossary=GLOSSARY.items()
        )
        return [write(folder / INDEX, page.encode()), *paths]

    def __repr__(self) -> str:
        lines = [f"Comparison of {listed(list(self.reports))}"]
        lines += [f"- {name}: {report.story.headline}" for name, report in self.reports.items()]
        return "\n".join([*lines, *(f"- {sentence}" for sentence in self.conclusions())])

    def _repr_html_(self) -> str:
        """The tables and the sentences about each model, which notebooks show."""
        said = {name: self.sentences(name) for name in self.reports}
        return notebook(TITLE, said, [self.table(), *self.tables()], [])


def contrast(results: Results) -> dict[Cell, Cell]:
    """The column of a model in the table of all models: cells by the names of their rows."""
    marks, splits = split_marks(results), distinct_names(results.calibration["split"])
    # The first split that nothing is wrong with, or the first; and the first that something is wrong with.
    good = next((x for x in splits if x not in marks), splits[0] if splits else "")
    bad = next((x for x in splits if x in marks and x != good), "")
    ood = next(iter(distinct_names(results.ood["ood"])), "")
    found = {
        Cell("classes"): Cell(str(results.settings["classes"])),
        Cell("OOD set"): Cell(ood) if ood else NOTHING,
        Cell("accuracy"): Cell(number(float(results.settings["accuracy"]))),
        Cell("calibrated on"): Cell(good, mark=marks.get(good, "")) if good else NOTHING,
    }

    def add(name: str, table: Any, column: str, mark: str = "", **how: Any) -> None:
        found[Cell(name, mark=mark)] = next(iter(cells(table[:1], column, **how)), NOTHING)

    for method in CALIBRATORS:
        rows = where(results.calibration, method=method.name)
        add(f"ECE, {CALLED.get(method.name, method.name)}", where(rows, split=good if method.needs_fit else ""), "ece")
        if method.needs_fit and method.in_diagram and bad:
            add(f"ECE, {method.name}", where(rows, split=bad), "ece", LEAKING)
    for score in COMPARED_SCORES:
        rows = where(results.ood, score=score)
        add(f"AUROC, {called(score)}", rows, "auroc", UPSIDE_DOWN if rows["upside_down"].any() else "")
    at_level, level = where(results.screening, alpha=TESTED_LEVELS[0]), short_percent(TESTED_LEVELS[0])
    for kind, title in (("id", "ID"), ("ood", "OOD")):
        add(f"flagged at {level}, {title}", where(at_level, test="conformal", kind=kind), "flagged", **PERCENT)
    add(f"paper’s test at {level}, ID", where(at_level, test="paper", kind="id"), "flagged", **PERCENT)
    for kind, title in (("id", "ID"), ("ood", "OOD")):
        rows = where(results.gaps, kind=kind)
        add(f"mean Δ, {title}", rows, "gap")
        for _, row in rows[:1].iterrows():
            found[Cell(f"forced by p̂, {title}")] = Cell(percent(forced_share(row)), f"R² {number(row['r2'], 3)}")
    return found


def slugs(names: Iterable[str]) -> dict[str, str]:
    """A different folder for each name.

    >>> slugs(["a b", "a-b", "A/B", "..", "index.html"])
    {'a b': 'a-b', 'a-b': 'a-b-2', 'A/B': 'A-B-3', '..': 'report', 'index.html': 'index.html-2'}
    """
    taken, found = {_alike(name) for name in RESERVED_FOLDERS}, {}
    for name in names:
        slug, number = _slug(name), 1
        while _alike(place := slug if number == 1 else f"{slug}-{number}") in taken:
            number += 1
        found[name] = place
        taken.add(_alike(place))
    return found


def comparison_files(names: Iterable[str]) -> list[str]:
    """The files that `Comparison.save` may write for models of these names, as paths in its folder."""
    return [INDEX, *(f"{place}/{file}" for place in slugs(names).values() for file in FILES)]


def _slug(name: str) -> str:
    """The name in characters that every file system and every link allows, and not too long."""
    text = "".join(char if char.isalnum() or char in "-._" else "-" for char in unicodedata.normalize("NFC", name))
    return text.encode()[:LONGEST_SLUG].decode(errors="ignore").strip(".") or "report"


def _alike(name: str) -> str:
    """A text that is equal for two names if some file systems cannot hold both."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def ood_contrast(reports: Mapping[str, Report]) -> list[Table]:
    """A table of AUROC for each OOD set, if a model has more than one; the table of all models has the first set."""
    tables = {name: report.results.ood for name, report in reports.items()}
    if all(table["ood"].nunique() < 2 for table in tables.values()):
        return []
    found = []
    for ood in distinct_names(name for table in tables.values() for name in table["ood"]):
        parts = [where(table, ood=ood) for table in tables.values()]
        own = distinct_names(score for part in parts for score in part[part["kind"] != "score"]["score"])
        rows = []
        for score in dict.fromkeys((*COMPARED_SCORES, *own)):
            row = [next(iter(cells(where(part, score=score), "auroc")), NOTHING) for part in parts]
            rows += [[_score_name(score), *row]] if any(cell != NOTHING for cell in row) else []
        found.append(Table(f"AUROC against {ood}, with 95 % intervals", ["score", *tables], rows))
    return found


def _score_name(score: str) -> Cell:
    return Cell(called(score), mark=UPSIDE_DOWN if score == PAPER_SCORE else "")


def difference_tables(differences: Any) -> list[Table]:
    """The paired differences from the first model: a table for accuracy and ECE, and one for each OOD set.

    A difference is emphasised if its interval is beyond 0.
    """
    found = []
    for ood, table in differences.groupby("ood", sort=False):
        models, rows = distinct_names(table["model"]), []
        for what, part in table.groupby("what", sort=False):
            sure = (part["difference_low"] > 0) | (part["difference_high"] < 0)
            made = {}
            for name, cell, best in zip(part["model"], cells(part, "difference", sign=True), sure, strict=True):
                made[name] = cell._replace(best=bool(best))
            rows.append([_score_name(str(what)), *(made.get(model, NOTHING) for model in models)])
        about = f"AUROC against {ood}" if ood else "Accuracy (higher is better) and ECE (lower is better)"
        minus = f"{about}: each model minus {table.iloc[0]['than']}"
        caption = f"{minus}, on the same samples, with 95 % intervals; bold if beyond 0"
        found.append(Table(caption, ["score" if ood else "number", *models], rows))
    return found
