"""The reports of several models side by side, in one table and on one page."""

import json
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from ..data.atomic import check_folder, write
from ..data.errors import printable
from ..plots import BLUE, ORANGE
from .calibration import calibration_advice
from .chart import BELOW, Chart
from .elements import NOTHING, Cell, Table, cells, make_table
from .format import join_words, percent, range_text, score_label, value_text
from .render import PAGES, cell_output
from .report import FILES, Report, strict
from .results import frame, where
from .review import flagged, unlike
from .story import Number

TITLE = "Which predictions to trust"
INDEX = "index.html"
LONGEST_SLUG = 150  # bytes
# The pages of trainings that examples/live_digits.py has written; the page links to them.
LIVE = "training/*/boc.html"
ROW = 22  # the height of a name or a bar
# The main numbers in the table of one row per model: the titles of their columns, and how to read them.
GLANCE = {
    "accuracy": ("accuracy", "{0.text} of its predictions are correct."),
    "ece": ("ECE", "Its calibration error (uncalibrated → calibrated) is {0.text}."),
    "coverage": ("coverage at ≤ 1 % error", "{0.text} of predictions can be automated: {0.note}."),
    "detected": ("OOD detected at 5 % FPR", "{0.text} of OOD samples are detected by the {0.note}."),
    "delay": ("detection delay", "Drift is detected after {0.text} (median); {0.note}."),
}
KINDS = {"id": BLUE, "ood": ORANGE}


class Bar(NamedTuple):
    """A bar of a model in a chart, with a label."""

    name: str
    end: float
    colour: str
    label: str


class Comparison:
    """Reports of several models, each on its own data.

    Args:
        reports: the reports by the names of the models.
        differences: a DataFrame of them, if the models share their samples; see `evaluation.compare`.

    >>> from torch_boc import zoo
    >>> from torch_boc.evaluation import evaluate
    >>> entry = zoo.load("resnet20-cifar10")
    >>> comparison = Comparison({"ResNet-20": evaluate(entry.id, entry.ood, replicates=20)})
    >>> [cell.text for cell in comparison.glance().rows[0]]
    ['ResNet-20', '91.7 %', '5.3 %', '69.7 %', '29.5 %', '14 samples']
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

    def tables(self) -> list[Table]:
        """Paired differences of accuracy and ECE, and of the AUROC of each score on each OOD set.

        A difference is emphasised if its interval excludes 0.
        """
        made = []
        for ood, table in self.differences.groupby("ood", sort=False):
            about = f"AUROC against {ood}" if ood else "Accuracy (higher is better) and ECE (lower is better)"
            minus = f"{about}: each model minus {table.iloc[0]['than']}"
            columns: dict[str, Any] = {"": [*map(score_label, table["what"].unique())]}
            for model, rows in table.groupby("model", sort=False):
                apart = (rows["difference_low"] > 0) | (rows["difference_high"] < 0)
                values = zip(cells(rows, "difference", sign=True), apart, strict=True)
                columns[model] = [cell._replace(best=bool(best)) for cell, best in values]
            caption = f"{minus}, on the same samples, with 95 % intervals; bold if they exclude 0"
            made.append(make_table(caption, columns))
        return made

    def glance(self) -> Table:
        """The main numbers: one row per model."""
        rows = []
        for name, numbers in main_numbers(self.reports).items():
            row = [Cell(numbers[key].text) if key in numbers else NOTHING for key in GLANCE]
            rows.append([Cell(name), *row])
        caption = "The main numbers of each model; ECE is uncalibrated → calibrated"
        return Table(caption, ["", *(title for title, _ in GLANCE.values())], rows)

    def reading(self) -> str:
        """What the second row of `glance`, or the only one, means."""
        place = min(2, len(self.reports))
        name, numbers = list(main_numbers(self.reports).items())[place - 1]
        valid = {key: x for key, x in numbers.items() if math.isfinite(x.value)}
        texts = [text.format(valid[key]) for key, (_, text) in GLANCE.items() if key in valid]
        return f"Reading row {place}, {name}: {' '.join(texts)}"

    def conclusions(self) -> list[str]:
        """What the paired differences from the first model say: a sentence for each model that shares its samples."""
        sentences = []
        for name, rows in where(self.differences, ood="").groupby("model", sort=False):
            parts = []
            for _, row in rows.iterrows():
                better = (row["difference"] > 0) == (row["what"] == "accuracy")
                word = ("better" if better else "worse") if row["sign"] else "not shown to differ"
                parts.append(f"{row['what']} {word}, {value_text(row, 'difference', 1, 100, sign=True)} points")
            sentences.append(f"{name} against {row['than']}, on the same samples: {'; '.join(parts)}.")
        return sentences

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
            paths += self.reports[name].save(folder / place, parent_link=f"../{INDEX}")
        page = PAGES.get_template("comparison.html.jinja").render(
            title=TITLE,
            conclusions=self.conclusions(),
            cards=cards(self.reports),
            glance=self.glance(),
            live={path.parent.name: path.relative_to(folder).as_posix() for path in sorted(folder.glob(LIVE))},
            tables=self.tables(),
            models=[
                (name, places[name], str(report.results.settings.get("title", "")).partition(": ")[2], report.story)
                for name, report in self.reports.items()
            ],
        )
        return [write(folder / INDEX, page.encode()), *paths]

    def __repr__(self) -> str:
        lines = [f"Comparison of {join_words(list(self.reports))}"]
        lines += [f"- {name}: {report.story.headline}" for name, report in self.reports.items()]
        return "\n".join([*lines, *(f"- {sentence}" for sentence in self.conclusions())])

    def _repr_html_(self) -> str:
        """The tables, and the finding and the warnings of each model, which notebooks show."""
        texts = {name: [report.story.finding, *report.story.warnings] for name, report in self.reports.items()}
        return cell_output(TITLE, texts, [self.glance(), *self.tables()], [])


def main_numbers(reports: Mapping[str, Report]) -> dict[str, dict[str, Number]]:
    """The main numbers of each model by their keys."""
    return {name: {x.key: x for x in report.story.numbers} for name, report in reports.items()}


def cards(reports: Mapping[str, Report]) -> list[tuple[str, str, Markup]]:
    """The topics of all models, each with a sentence and a chart, if there are numbers: coverage comes first."""
    made, numbers = [], main_numbers(reports)

    def valid(key: str, none: str) -> tuple[dict[str, Number], str]:
        """The valid numbers of the models by name, and which models have none."""
        given = {name: x[key] for name, x in numbers.items() if key in x}
        shown = {name: x for name, x in given.items() if math.isfinite(x.value)}
        without = [name for name in given if name not in shown]
        return shown, f" {none} {join_words(without)}." if without else ""

    shown, without = valid("coverage", "None for")
    if shown:
        shares, first = [x.value for x in shown.values()], next(iter(shown.values()))
        text = f"{range_text(shares, percent)} of predictions can be accepted: {first.note}.{without}"
        rows = [Bar(name, x.value, BLUE, x.text) for name, x in shown.items()]
        made.append((first.label.capitalize(), text, bars("coverage", rows, {}, 1)))
    advice = {name: x for name, report in reports.items() if (x := calibration_advice(report.results)) is not None}
    if advice:
        rows, errors = [], {"uncalibrated": list[float](), "calibrated": list[float]()}
        for name, x in advice.items():
            for kind, colour, row in (("uncalibrated", ORANGE, x.plain), ("calibrated", BLUE, x.best)):
                if row is not None:
                    errors[kind].append(row["ece"])
                    rows.append(Bar(name, row["ece"], colour, percent(row["ece"])))
        raw, better = errors.values()
        text = f"ECE {range_text(raw, percent)}"
        if better:
            of_all = "" if len(better) == len(raw) else f" of {len(better)} of {len(raw)} models"
            text += f", {range_text(better, percent)} after calibration{of_all}"
        kinds = {"uncalibrated": ORANGE, "calibrated": BLUE} if better else {}
        made.append(("Calibration", f"{text}.", bars("ECE", rows, kinds, max(raw))))
    rows, void = [], [name for name, report in reports.items() if unlike(report.results)]
    for name, report in reports.items():
        for _, row in flagged(report.results).iterrows():
            rows.append(Bar(name, row["flagged"], KINDS[row["kind"]], percent(row["flagged"])))
    if rows:
        fpr, detected = ([bar.end for bar in rows if bar.colour == colour] for colour in KINDS.values())
        text = f"At a nominal 5 % FPR the measured FPR is {range_text(fpr, percent)}"
        text += f", and {range_text(detected, percent)} of OOD samples are detected." if detected else "."
        text += f" It is not valid for {join_words(void)}, whose held-out samples look different." if void else ""
        names = {"ID (FPR)": KINDS["id"], "OOD (detected)": KINDS["ood"]}
        made.append(("OOD detection", text, bars("flagged", rows, names, 1)))
    shown, without = valid("delay", "None for")
    if shown:
        delays = [x.value for x in shown.values()]
        text = f"Median detection delay {range_text(delays, '{:,.0f}'.format)} samples; "
        text += f"{next(iter(shown.values())).note}.{without}"
        rows = [Bar(name, x.value, ORANGE, f"{x.value:,.0f}") for name, x in shown.items()]
        made.append(("Drift", text, bars("detection delay in samples", rows, {}, max(delays), percent="")))
    return made


def bars(xlabel: str, rows: list[Bar], kinds: Mapping[str, str], most: float, percent: str = "x") -> Markup:
    """A chart with the bars of each model below its name; charts of as many models have the same height."""
    names, down, tooltips = dict.fromkeys(bar.name for bar in rows), 0.0, []
    height = 3 * ROW * len(names)
    step = height / (len(rows) + len(names))
    chart = Chart(xlabel, None, (0, most), (height, 0), percent=percent, height=height + BELOW)
    for kind, colour in kinds.items() if {bar.colour for bar in rows} >= {*kinds.values()} else ():
        chart.name(kind, f'<circle cx="8" cy="-4" r="4" fill="{colour}"/>')
    for name in names:
        group = [bar for bar in rows if bar.name == name]
        tooltips.append(f"{name}: {', '.join(bar.label for bar in group)}")
        chart.row_label(down + step / 2, name)
        for bar in group:
            down += step
            chart.bar(down + 0.3 * step, (0, bar.end), bar.colour, tooltips[-1], bar.label)
        down += step
    return Markup(chart.svg(f"{xlabel}. {'; '.join(tooltips)}."))


def slugs(names: Iterable[str]) -> dict[str, str]:
    """A different folder for each name, even where case does not count, in characters that every link allows.

    >>> slugs(["a b", "a-b", "A/B", "..", "index.html"])
    {'a b': 'a-b', 'a-b': 'a-b-2', 'A/B': 'A-B-3', '..': 'report', 'index.html': 'index.html-2'}
    """
    taken, folders = {INDEX}, {}
    for name in names:
        text = re.sub(r"[^\w.-]", "-", unicodedata.normalize("NFKC", name))
        slug = text.encode()[:LONGEST_SLUG].decode(errors="ignore").strip(".") or "report"
        numbered = (f"{slug}-{number}" for number in count(2))
        folders[name] = next(x for x in chain([slug], numbered) if x.casefold() not in taken)
        taken.add(folders[name].casefold())
    return folders


def comparison_files(names: Iterable[str]) -> list[str]:
    """The files that `Comparison.save` may write for models of these names, as paths in its folder."""
    return [INDEX, *(f"{place}/{file}" for place in slugs(names).values() for file in FILES)]
