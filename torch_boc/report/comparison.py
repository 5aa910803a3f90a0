"""The reports of several models side by side, in one table and on one page."""

import json
import os
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..data.atomic import check_folder, printable
from ..plots import CYCLE, GREY, notebook
from .axes import SETS, figure_text, finish, panels
from .document import Picture, template
from .parts import NOTHING, UPSIDE_DOWN, Cell, Table, first_cell, row_cell
from .report import FILES, Report, strict, write
from .tables import DifferenceRow, Results, frame
from .topics import Introductions, captions, contrast_rows, glossary, headline, key_sentences
from .words import BASELINE, COMPARED_SCORES, PAPER_SCORE, distinct_names, listed, number, symbol, value_text

TITLE = "Bag-of-Coins: side by side"
NOTE = "With 95 % intervals. ECE: lower is better. AUROC: higher is better, and 0.5 is chance."

INDEX = "index.html"
# Names that no folder of a report may have: that of the page of all models, and the names of devices in Windows.
RESERVED_FOLDERS = (INDEX, "con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10)))
LONGEST_SLUG = 150  # bytes
MARKERS = "os^Dv<>"


class Comparison:
    """Reports of several models, each on its own data.

    Args:
        reports: the reports by the names of the models.
        differences: a DataFrame of `DifferenceRow`, if the models share their samples; see `evaluation.compare`.

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
        self.reports = _by_printable_name(reports)
        self.differences = frame(DifferenceRow, ()) if differences is None else _printable_names(differences)
        unknown = [name for name in self.differences["model"] if name not in self.reports]
        if unknown:
            raise ValueError(f"expected differences of models among {', '.join(self.reports)}, got {unknown[0]!r}")

    def table(self) -> Table:
        """A table with a column for each model. A row without any value is left out."""
        models = self._results().values()
        found = [
            [Cell("classes"), *(Cell(str(x.settings["classes"])) for x in models)],
            [Cell("OOD set"), *(Cell(next(iter(distinct_names(x.ood["ood"])), "–")) for x in models)],
            [Cell("accuracy"), *(Cell(number(float(x.settings["accuracy"]))) for x in models)],
            *([title, *map(cell, models)] for title, cell in contrast_rows()),
        ]
        present = [row for row in found if any(cell.text != "–" for cell in row[1:])]
        return Table(self._caption(), ["", *self.reports], present)

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
        return [*difference_tables(self.differences), *ood_contrast(self._results())]

    def _results(self) -> dict[str, Results]:
        return {name: report.results for name, report in self.reports.items()}

    def sentences(self, name: str) -> list[str]:
        """The sentences about one model."""
        return key_sentences(self.reports[name].results)

    def to_json(self) -> str:
        """A JSON object with the report of each model, as in `Report.to_json`.

        The tables of a model include the `differences` from the first model, if there are any.
        """
        content = {name: report.content() for name, report in self.reports.items()}
        for name in distinct_names(self.differences["model"]):
            rows = self.differences[self.differences["model"] == name]
            content[name]["tables"]["differences"] = rows.to_dict("list")
        return json.dumps(strict(content), ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write index.html, which shows all models side by side, and each report into a folder of its own.

        A folder has the name of its model, without characters that a folder cannot have. If two names are the same, or
        differ only in capitals, a number is added to the later one.

        Returns:
            The paths of all files, index.html first.
        """
        folder, places = check_folder(folder, comparison_files(self.reports)), slugs(self.reports)
        paths: list[Path] = []
        shown: dict[str, dict[str, Picture]] = {}
        for name, report in self.reports.items():
            pictures = report.pictures()
            paths += report.save(folder / places[name], pictures, up=f"../{INDEX}")
            shown[name] = {key: pictures[key] for key in ("coherence", "roc") if key in pictures}
        return [write(folder / INDEX, self._page(shown).encode()), *paths]

    def _page(self, drawn: Mapping[str, Mapping[str, Any]]) -> str:
        table = self.table()
        words = [*(row[0].text for row in table.rows), *(cell.small for row in table.rows for cell in row)]
        reader = Introductions()
        return template("comparison.html.jinja").render(
            title=TITLE,
            notes=[NOTE],
            tables=[table, *self.tables()],
            symbols=reader.of(words),
            models=[self._model(name, report, drawn[name], reader) for name, report in self.reports.items()],
            glossary=glossary(),
        )

    def __repr__(self) -> str:
        lines = [f"Comparison of {listed(list(self.reports))}"]
        lines += [f"- {name}: {headline(report.results)}" for name, report in self.reports.items()]
        for _, row in self.differences[self.differences["ood"] == ""].iterrows():
            difference = value_text(row, "difference", sign=True)
            lines.append(f"- {row['what']} of {row['model']} minus that of {row['than']}: {difference}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The tables, the sentences about each model and a figure, which notebooks show."""
        said = {name: self.sentences(name) for name in self.reports}
        whole = template("contrast.html.jinja").render(tables=[self.table(), *self.tables()], models=said)

        def draw() -> tuple[Any, str] | None:
            drawn = contrast_figure(self._results())
            alt = "A number of each model with its 95 % interval; the tables above have the numbers."
            return None if drawn is None else (drawn, alt)

        return notebook(whole, draw)

    def _model(self, name: str, report: Report, drawn: Mapping[str, Any], reader: Introductions) -> dict[str, Any]:
        """What the page says of one model."""
        results, place = report.results, slugs(self.reports)[name]
        return {
            "name": name.strip() or place,
            "link": f"{quote(place)}/report.html",
            "subtitle": str(results.settings.get("title", "")),
            "headline": headline(results),
            "sentences": self.sentences(name),
            "symbols": reader.of(self.sentences(name)),
            "figures": [(captions(results, [key])[0], image) for key, image in drawn.items()],
        }


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


def _by_printable_name(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values under the names of the models, in which control characters are written as escapes."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise TypeError(f"expected names of models as strings, got {name!r}")
        if printable(name) in result:
            raise ValueError(f"expected names that differ when they are printed, got {name!r} twice")
        result[printable(name)] = value
    return result


def _printable_names(differences: Any) -> Any:
    """The same rows, with the names of models and OOD sets as the reports have them."""
    return differences.assign(**{name: differences[name].map(printable) for name in ("model", "than", "ood")})


def all_ood_sets(models: Mapping[str, Results]) -> list[str]:
    """The names of the OOD sets of all models, in the order in which they come."""
    return distinct_names([name for results in models.values() for name in results.ood["ood"]])


def ood_contrast(models: Mapping[str, Results]) -> list[Table]:
    """A table of AUROC for each OOD set, if a model has more than one; the table of all models has the first set."""
    if all(len(distinct_names(results.ood["ood"])) < 2 for results in models.values()):
        return []
    found = []
    for ood in all_ood_sets(models):
        tables = [results.ood[results.ood["ood"] == ood] for results in models.values()]
        own = distinct_names([score for table in tables for score in table[table["kind"] != "score"]["score"]])
        rows = []
        for score in dict.fromkeys((*COMPARED_SCORES, *own)):
            cells = [first_cell(table[table["score"] == score], "auroc") for table in tables]
            rows += [[_score_name(score), *cells]] if any(cell != NOTHING for cell in cells) else []
        found.append(Table(f"AUROC against {ood}, with 95 % intervals", ["score", *models], rows))
    return found


def _score_name(score: str) -> Cell:
    return Cell(symbol(score), mark=UPSIDE_DOWN if score == PAPER_SCORE else "")


def difference_tables(differences: Any) -> list[Table]:
    """The paired differences from the first model: a table for accuracy and ECE, and one for each OOD set.

    A difference is emphasised if its interval is beyond 0.
    """
    found = []
    for ood, table in differences.groupby("ood", sort=False):
        models, than = distinct_names(table["model"]), table.iloc[0]["than"]
        sure = (table["difference_low"] > 0) | (table["difference_high"] < 0)
        cells = {
            (row["what"], row["model"]): row_cell(row, "difference", sign=True, best=best)
            for (_, row), best in zip(table.iterrows(), sure, strict=True)
        }
        rows = [
            [_score_name(what), *(cells.get((what, model), NOTHING) for model in models)]
            for what in distinct_names(table["what"])
        ]
        about = f"AUROC against {ood}" if ood else "Accuracy (higher is better) and ECE (lower is better)"
        caption = f"{about}: each model minus {than}, on the same samples, with 95 % intervals; bold if beyond 0"
        found.append(Table(caption, ["score" if ood else "number", *models], rows))
    return found


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
