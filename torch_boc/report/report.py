"""The outcome of an evaluation: tables, figures and what they say."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from .._optional import has
from ..data.atomic import check_file, check_folder, replacing
from .document import Picture, markdown, notebook, page, picture
from .explore import explore_page
from .tables import EXPLORED, ROW_TYPES, Results, frame
from .topics import all_figures, draw_figures, headline, verdict

DIAGNOSTICS = ("leaks", "overlaps", "gaps", "trials", "coherence", "reliability", "screening", "thresholds", "stream")
EXPLORE = "explore.html"
FILES = ("report.html", "report.md", "report.json", EXPLORE, *(f"{figure.name}.png" for figure in all_figures()))
TABLES = tuple(name for name in ROW_TYPES if name not in EXPLORED)


@dataclass(frozen=True, repr=False, eq=False)
class Report:
    """The results of `evaluate`. Every table and column is documented in `Results`.

    >>> from torch_boc.evaluation import evaluate
    >>> report = evaluate(torch.randn(100, 4), replicates=10)
    >>> print(report.verdict[0])
    “id” has no targets, so nothing is said of calibration.
    >>> list(report.figures())
    ['coherence', 'gaps']
    """

    results: Results

    @property
    def calibration(self) -> Any:
        """A DataFrame with the ECE, the NLL and the Brier score of each calibration method."""
        return self.results.calibration

    @property
    def ood(self) -> Any:
        """A DataFrame with the AUROC, the FPR at 95 % TPR and the AUPR of each score on each OOD set."""
        return self.results.ood

    @property
    def diagnostics(self) -> dict[str, Any]:
        """Further DataFrames by name.

        These are leaks, overlaps, gaps, trials, coherence, reliability, screening, thresholds and stream.
        """
        return {name: getattr(self.results, name) for name in DIAGNOSTICS}

    @property
    def verdict(self) -> list[str]:
        """What the numbers say, in plain sentences."""
        return verdict(self.results)

    def figures(self) -> dict[str, Any]:
        """Figures of matplotlib by name: reliability, roc, scores, stream, coherence, gaps and trials.

        A figure that has nothing to show is missing.
        """
        return draw_figures(self.results)

    def to_markdown(self) -> str:
        """The report in GitHub-flavoured Markdown, without figures."""
        return markdown(self.results)

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as one self-contained HTML file.

        Returns:
            The path.
        """
        check_file(path)  # an error comes before the work
        return write(path, page(self.results, self.pictures()).encode())

    def pictures(self) -> dict[str, Picture]:
        """The figures by name, drawn as they are on the page and in the files of `save`."""
        return {name: picture(figure) for name, figure in self.figures().items()}

    def explore(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to explore as one self-contained HTML file of about 5 MB, most of which is plotly's script.

        It has ROC and reliability curves with values under the pointer, a slider for the threshold of a score, Δ
        against confidence for single samples, and a list of the most suspicious samples that can be sorted. A panel
        that this report has no numbers for is named and left out.

        Returns:
            The path.

        Raises:
            ImportError: if plotly is not installed.
        """
        check_file(path)
        return write(path, explore_page(self.results).encode())

    def content(self) -> dict[str, Any]:
        """A dict of `settings`, `verdict` and `tables`; each table is a dict of its columns.

        The tables `samples` and `alarms` of the page to explore are not among them: they are large, and only that page
        shows them.
        """
        tables = {name: getattr(self.results, name).to_dict("list") for name in TABLES}
        return {"settings": self.results.settings, "verdict": self.verdict, "tables": tables}

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report as strict JSON, which is also written to `path` if there is one.

        It is an object with `settings`, `verdict` and `tables`. A table is an object of its columns, so that
        `pandas.DataFrame(tables["ood"])` makes the table again. NaN and infinite numbers are null.
        """
        if path is not None:
            check_file(path)
        text = json.dumps(strict(self.content()), ensure_ascii=False, allow_nan=False) + "\n"
        if path is not None:
            write(path, text.encode())
        return text

    def save(
        self, folder: str | os.PathLike[str], pictures: Mapping[str, Picture] | None = None, *, up: str | None = None
    ) -> list[Path]:
        """Write report.html, report.md, report.json, explore.html and a PNG file for each figure into `folder`.

        Without plotly, explore.html is left out. See `explore`.

        Args:
            folder: the folder, which is made if it does not exist.
            pictures: the result of `pictures()`, if the figures are drawn already.
            up: a link to the page of all models, if the report is one of several.

        Returns:
            The paths of the files, report.html first and explore.html last.
        """
        folder = check_folder(folder, FILES)
        pictures = self.pictures() if pictures is None else pictures
        links = {name: f"{name}.png" for name in pictures}
        explored = EXPLORE if has("plotly") else None
        files = {
            "report.html": page(self.results, pictures, up, explored).encode(),
            "report.md": markdown(self.results, links).encode(),
            "report.json": self.to_json().encode(),
            **{links[name]: drawn.content for name, drawn in pictures.items()},
        }
        paths = [write(folder / name, content) for name, content in files.items()]
        return paths + ([self.explore(folder / explored)] if explored else [])

    def __repr__(self) -> str:
        return "\n".join([f"Report: {headline(self.results)}", *(f"- {sentence}" for sentence in self.verdict)])

    def _repr_html_(self) -> str:
        """The verdict, the main tables and a figure, which notebooks show."""
        return notebook(self.results)


def write(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file, which is complete or not there at all; returns its path."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return Path(path)


def strict(value: Any) -> Any:
    """The value in types of strict JSON: numbers of other libraries become Python's, NaN and infinities become None."""
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def read_report(path: str | os.PathLike[str]) -> Report:
    """The report in a file that `Report.to_json` or `Report.save` has written, without the tables to explore.

    Raises:
        ValueError: if the file is not such a report.

    >>> import tempfile
    >>> from torch_boc.evaluation import evaluate
    >>> path = Path(tempfile.mkdtemp()) / "report.json"
    >>> report = evaluate(torch.randn(50, 3), replicates=5)
    >>> _ = report.to_json(path)
    >>> read_report(path).verdict == report.verdict
    True
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: expected the JSON of a report, got a file that is not JSON ({error})") from None
    tables = content.get("tables") if isinstance(content, dict) else None
    settings = content.get("settings") if isinstance(content, dict) else None
    if not isinstance(tables, dict) or not isinstance(settings, dict) or not {"samples", "classes"} <= set(settings):
        raise ValueError(f"{path}: expected the JSON of one report, with settings and tables; got something else")
    read = {name: _table(ROW_TYPES[name], tables.get(name, {}), f"{path}: table {name!r}") for name in TABLES}
    accuracy = settings.get("accuracy")
    settings = {"title": "", **settings, "accuracy": math.nan if accuracy is None else float(accuracy)}
    return Report(Results(settings, **read))


def _table(row: Any, columns: Any, what: str) -> Any:
    """A table from its columns, in the types of its rows; null is NaN."""
    missing = [name for name in row._fields if name not in columns]
    if columns and missing:
        raise ValueError(f"{what}: expected a column {missing[0]!r}, got none; write the report again")
    made = frame(row, []) if not columns else frame(row, list(zip(*(columns[x] for x in row._fields), strict=True)))
    numbers = {name: float for name, kind in get_type_hints(row).items() if kind is float}
    try:
        return made.astype(numbers)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}: expected numbers, got {error}") from None
