"""The reports of several models side by side, in one table and on one page."""

import json
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from .._optional import require
from ..calibration import CALIBRATORS, TemperatureScaling
from ..data.atomic import check_folder, write
from ..data.text import printable
from .calibration import CALLED, calibration_advice, split_marks
from .chart import BELOW, BLUE, ORANGE, Chart
from .coherence import forced_share
from .elements import NOTHING, Cell, Table, cells
from .render import PAGES, notebook
from .report import FILES, Report, strict
from .results import Results, frame, where
from .review import flagged, unlike, violated
from .words import (
    CONDITION,
    PERCENT,
    UPSIDE_DOWN,
    join_words,
    number,
    percent,
    range_text,
    score_label,
    short_percent,
    significant_sign,
    value_text,
)

TITLE = "Know when you can act on what your classifier says"
INDEX = "index.html"
# Names that no folder of a report may have: that of the page of all models, and the names of devices in Windows.
RESERVED_FOLDERS = (INDEX, "con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10)))
LONGEST_SLUG = 150  # bytes
# The scores that are compared between models.
COMPARED_SCORES = (
    *("msp", "energy", "gen", "logit_gap", "tempered_dominance", "log_p_value", "gap", "concentration"),
    *("structural_score", "odin", "mahalanobis"),
)
# The pages of trainings that examples/live_digits.py has written; the page links to them.
LIVE = "training/*/boc.html"
ROW = 22  # the height of a name or a bar
# The main numbers of a report that are in the table of one row for each model, and the titles of their columns.
GLANCE = {
    "accuracy": "accuracy",
    "ECE": "ECE",
    "detected": "OOD detected at 5 % FPR",
    "accepted at 1 % error": "accepted at 1 % error",
    "detection delay": "detection delay, in samples",
}


class Bar(NamedTuple):
    """A bar of a model in a chart, with words beside it."""

    name: str
    start: float
    end: float
    colour: str
    words: str


class Comparison:
    """Reports of several models, each on its own data.

    Args:
        reports: the reports by the names of the models.
        differences: a DataFrame of them, if the models share their samples; see `evaluation.compare`.

    >>> from torch_boc import zoo
    >>> from torch_boc.evaluation import evaluate
    >>> entry = zoo.load("resnet20-cifar10")
    >>> comparison = Comparison({"ResNet-20": evaluate(entry.id, entry.ood, replicates=20)})
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
        sharing = {*self.differences["model"], *self.differences["than"]}  # models that share their samples
        caption = "All models on the same test set, each against its first OOD set"
        if not sharing:
            caption = "Each model on its own test set, against its own OOD set"
        elif not sharing >= {*self.reports}:
            names = join_words([name for name in self.reports if name in sharing])
            caption = f"Each model on its test set, against its first OOD set; {names} share their test set"
        return Table(caption, ["", *self.reports], rows)

    def tables(self) -> list[Table]:
        """Further tables: paired differences, and the AUROC on every OOD set if a model has several.

        A difference is emphasised if its interval is beyond 0.
        """
        found, areas = [], []
        for ood, table in self.differences.groupby("ood", sort=False):
            sure = (table["difference_low"] > 0) | (table["difference_high"] < 0)
            about = f"AUROC against {ood}" if ood else "Accuracy (higher is better) and ECE (lower is better)"
            minus = f"{about}: each model minus {table.iloc[0]['than']}"
            caption = f"{minus}, on the same samples, with 95 % intervals; bold if beyond 0"
            names = "score" if ood else "number", table["model"].unique(), table.assign(sure=sure)
            found.append(model_table(caption, *names, "difference", table["what"].unique(), sign=True))
        for name, report in self.reports.items():
            areas.append(report.ood.assign(model=name, what=report.ood["score"], sure=False))
        if max(table["ood"].nunique() for table in areas) > 1:
            everything = require("pandas", purpose="evaluation needs").concat([table for table in areas if len(table)])
            for ood, table in everything.groupby("ood", sort=False):
                what = dict.fromkeys((*COMPARED_SCORES, *table[table["kind"] != "score"]["score"]))
                caption = f"AUROC against {ood}, with 95 % intervals"
                found.append(model_table(caption, "score", self.reports, table, "auroc", what))
        return found

    def glance(self) -> Table:
        """The main numbers: a row for each model."""
        rows = []
        for name, report in self.reports.items():
            found = dict.fromkeys(GLANCE, NOTHING)
            for value, what, _ in report.story.numbers:
                found[what.partition(",")[0]] = Cell(value.removesuffix("s").removesuffix(" sample"))
            for _, row in where(flagged(report.results), kind="ood").iterrows():
                found["detected"] = Cell(percent(row["flagged"]), f"of {row['set']}, by {score_label(row['score'])}")
            rows.append([Cell(name), *(found[key] for key in GLANCE)])
        return Table(
            "The main numbers of each model; the arrow is uncalibrated → calibrated", ["", *GLANCE.values()], rows
        )

    def conclusions(self) -> list[str]:
        """What the paired differences from the first model say: a sentence for each model that shares its samples."""
        found, table = [], where(self.differences, ood="")
        for name, rows in table.assign(shown=significant_sign(table, "difference")).groupby("model", sort=False):
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
        for name, place in places.items():
            paths += self.reports[name].save(folder / place, up=f"../{INDEX}")
        page = PAGES.get_template("comparison.html.jinja").render(
            title=TITLE,
            conclusions=self.conclusions(),
            cards=cards(self.reports),
            glance=self.glance(),
            live={path.parent.name: path.relative_to(folder).as_posix() for path in sorted(folder.glob(LIVE))},
            tables=[self.table(), *self.tables()],
            models=[(name, places[name], report.story) for name, report in self.reports.items()],
        )
        return [write(folder / INDEX, page.encode()), *paths]

    def __repr__(self) -> str:
        lines = [f"Comparison of {join_words(list(self.reports))}"]
        lines += [f"- {name}: {report.story.headline}" for name, report in self.reports.items()]
        return "\n".join([*lines, *(f"- {sentence}" for sentence in self.conclusions())])

    def _repr_html_(self) -> str:
        """The tables, and the finding and the warnings of each model, which notebooks show."""
        said = {name: [report.story.finding, *report.story.warnings] for name, report in self.reports.items()}
        return notebook(TITLE, said, [self.glance(), self.table(), *self.tables()], [])


def cards(reports: Mapping[str, Report]) -> list[tuple[str, str, Markup]]:
    """The topics of all models, each with a sentence and a figure, as far as there are numbers."""
    honest, tested, alarms = (list[Bar]() for _ in range(3))
    silent, alphas, forced, made = list[str](), list[float](), dict[str, float](), []
    plain, calibrated = list[float](), list[float]()
    for name, report in reports.items():
        results = report.results
        confidence, accuracy = results.gaps.iloc[0]["confidence"], results.settings["accuracy"]
        if accuracy == accuracy:
            honest.append(Bar(name, accuracy, confidence, ORANGE, number(confidence - accuracy, 1, 100, sign=True)))
        if (found := calibration_advice(results)) is not None:
            plain.append(found.plain["ece"])
            calibrated += [] if found.best is None else [found.best["ece"]]
        for _, row in flagged(results).iterrows():
            colour = BLUE if row["kind"] == "id" else ORANGE
            tested.append(Bar(name, 0.0, row["flagged"], colour, percent(row["flagged"])))
        for _, row in results.delays[:1].iterrows():
            alphas.append(row["alpha"])
            if math.isfinite(row["delay"]) and not unlike(results):
                alarms.append(Bar(name, 0.0, row["delay"], ORANGE, f"{row['delay']:,.0f}"))
            else:
                silent.append(name)
        table = results.gaps[results.gaps["gap"] > 0]
        if "coherence" in report.story.figures and len(table):
            forced[name] = (table["forced_gap"] / table["gap"]).min()
    if honest:
        low = min(min(bar.start, bar.end) for bar in honest) - 0.02
        drawn = bars("share", honest, {"accuracy": BLUE, "mean confidence": ORANGE}, (low, 1))
        said = f"ECE {range_text(plain, percent)}"
        said += f", {range_text(calibrated, percent)} after calibration." if len(calibrated) == len(plain) else "."
        made.append(("Calibration", said, drawn))
    if tested:
        known, others = ([bar.end for bar in tested if bar.colour == colour] for colour in (BLUE, ORANGE))
        said = f"At a nominal 5 % FPR the measured FPR is {range_text(known, percent)}"
        said += f", and {range_text(others, percent)} of OOD samples are detected." if others else "."
        void = [name for name, report in reports.items() if unlike(report.results)]
        said += f" It is not valid for {join_words(void)}, whose held-out samples look different." if void else ""
        drawn = bars("flagged", tested, {"ID": BLUE, "OOD": ORANGE}, (0, 1))
        made.append(("OOD detection", said, drawn))
    if alarms:
        delays = [bar.end for bar in alarms]
        said = f"Median detection delay {range_text(delays, '{:,.0f}'.format)} samples"
        said += f"; none for {join_words(silent)}. " if silent else ". "
        said += f"The probability of ever raising a false alarm is at most {short_percent(max(alphas))}, {CONDITION}."
        made.append(("Drift", said, bars("detection delay in samples", alarms, {}, (0, max(delays)), "")))
    if forced:
        least = min(forced, key=forced.__getitem__)
        said = f"Confidence forces at least {percent(forced[least])} of the mean coherence gap. Here {least}:"
        drawn = Markup(reports[least].story.figures["coherence"])
        made.append(("Coherence gap", said, drawn))
    return made


def bars(
    xlabel: str, rows: list[Bar], kinds: Mapping[str, str], ends: tuple[float, float], percent: str = "x"
) -> Markup:
    """A chart with the bars of each model under its name; a bar that does not begin at 0 has a dot at both ends."""
    names, down, told = dict.fromkeys(bar.name for bar in rows), 0.0, []
    height = ROW * (len(rows) + len(names))
    chart = Chart(xlabel, "", ends, (height, 0), percent=percent, height=height + BELOW)
    for kind, colour in kinds.items():
        chart.name(kind, f'<circle cx="8" cy="-4" r="4" fill="{colour}"/>')
    for name in names:
        own = [bar for bar in rows if bar.name == name]
        told.append(f"{name}: {', '.join(bar.words for bar in own)}")
        chart.row_label(down + ROW / 2, name)
        for bar in own:
            down += ROW
            chart.bar(down + 0.3 * ROW, (bar.start, bar.end), bar.colour, told[-1], bar.words)
            if bar.start:
                chart.dot(bar.start, down + 0.3 * ROW, BLUE, told[-1])
        down += ROW
    return Markup(chart.svg(f"{xlabel}. {'; '.join(told)}."))


def contrast(results: Results) -> dict[Cell, Cell]:
    """The column of a model in the table of all models: cells by the names of their rows."""
    marks, splits = split_marks(results), [x for x in results.calibration["split"].unique() if x]
    # The first split that nothing is wrong with, or the first; and the first that something is wrong with.
    good = next((x for x in splits if x not in marks), splits[0] if splits else "")
    bad = next((x for x in splits if x in marks and x != good), "")
    ood = next(iter(results.ood["ood"]), "")
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
        if method is TemperatureScaling and bad:
            add(f"ECE, {method.name}", where(rows, split=bad), "ece", marks[bad])
    for score in COMPARED_SCORES:
        rows = where(results.ood, score=score)
        add(f"AUROC, {score_label(score)}", rows, "auroc", UPSIDE_DOWN if rows["upside_down"].any() else "")
    for kind, title in (("id", "ID"), ("ood", "OOD")):
        add(f"flagged at 5 % FPR, {title}", where(flagged(results), kind=kind), "flagged", **PERCENT)
    if len(results.acceptance) and (violated(results) or not results.acceptance["accepted"].iloc[0]):
        found[Cell("accepted at 1 % error")] = Cell("not valid" if violated(results) else "none")
    else:
        add("accepted at 1 % error", results.acceptance, "accepted", **PERCENT)
    add("paper’s test at 5 %, ID", where(results.screening, test="paper", kind="id"), "flagged", **PERCENT)
    for kind, title in (("id", "ID"), ("ood", "OOD")):
        rows = where(results.gaps, kind=kind)
        add(f"mean Δ, {title}", rows, "gap")
        for _, row in rows[:1].iterrows():
            found[Cell(f"forced by p̂, {title}")] = Cell(percent(forced_share(row)), f"R² {number(row['r2'], 3)}")
    return found


def slugs(names: Iterable[str]) -> dict[str, str]:
    """A different folder for each name, in characters that every file system and every link allows, and not too long.

    >>> slugs(["a b", "a-b", "A/B", "..", "index.html"])
    {'a b': 'a-b', 'a-b': 'a-b-2', 'A/B': 'A-B-3', '..': 'report', 'index.html': 'index.html-2'}
    """
    taken, found = set(map(_alike, RESERVED_FOLDERS)), {}
    for name in names:
        text = re.sub(r"[^\w.-]", "-", unicodedata.normalize("NFC", name))
        place = slug = text.encode()[:LONGEST_SLUG].decode(errors="ignore").strip(".") or "report"
        number = 1
        while _alike(place) in taken:
            number += 1
            place = f"{slug}-{number}"
        found[name] = place
        taken.add(_alike(place))
    return found


def comparison_files(names: Iterable[str]) -> list[str]:
    """The files that `Comparison.save` may write for models of these names, as paths in its folder."""
    return [INDEX, *(f"{place}/{file}" for place in slugs(names).values() for file in FILES)]


def _alike(name: str) -> str:
    """A text that is equal for two names if some file systems cannot hold both."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def model_table(caption: str, title: str, models: Any, table: Any, column: str, what: Any, **how: Any) -> Table:
    """A table with a row for each score, or other number, in `what`, and a column for each model.

    `table` is a DataFrame with the columns `model`, `what`, `column`, and `sure`: whether a value is emphasised.
    """
    rows = []
    for name in what:
        part, found = where(table, what=name), {}
        for model, cell, sure in zip(part["model"], cells(part, column, **how), part["sure"], strict=True):
            found[model] = cell._replace(best=bool(sure))
        if any(cell != NOTHING for cell in found.values()):
            mark = UPSIDE_DOWN if name == "structural_score" else ""
            rows.append([Cell(score_label(name), mark=mark), *(found.get(model, NOTHING) for model in models)])
    return Table(caption, [title, *models], rows)
