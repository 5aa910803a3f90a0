"""The outcome of an evaluation: tables, figures and what they say."""

import json
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from .._optional import require
from ..storage.files import check_file, check_folder, replacing
from .axes import PANEL
from .html import Picture, notebook, page
from .markdown import markdown
from .measured import headline
from .results import ROW_TYPES, Results
from .topics import all_figures, draw_figures, verdict

DIAGNOSTICS = ("leaks", "overlaps", "gaps", "trials", "coherence", "reliability")
FILES = ("report.html", "report.md", "report.json", *(f"{figure.name}.png" for figure in all_figures()))
LARGEST_SVG = 200_000
TABLES = tuple(ROW_TYPES)


@dataclass(frozen=True, repr=False, eq=False)
class Report:
    """What `evaluate` found; `Results` documents every table and column.

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
        """ECE, NLL and Brier score of each calibration method, a DataFrame."""
        return self.results.calibration

    @property
    def ood(self) -> Any:
        """AUROC, FPR at 95 % TPR and AUPR of each score on each OOD set, a DataFrame."""
        return self.results.ood

    @property
    def diagnostics(self) -> dict[str, Any]:
        """Further DataFrames by name: leaks, overlaps, gaps, trials, coherence, reliability."""
        return {name: getattr(self.results, name) for name in DIAGNOSTICS}

    @property
    def verdict(self) -> list[str]:
        """What the numbers say, in plain sentences."""
        return verdict(self.results)

    def figures(self) -> dict[str, Any]:
        """Figures of matplotlib: reliability, roc, scores, coherence, gaps, trials, if there is something to show."""
        return draw_figures(self.results)

    def to_markdown(self) -> str:
        """The report in GitHub-flavoured Markdown, without figures."""
        return markdown(self.results)

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as one self-contained HTML file.

        Returns:
            The path.
        """
        check_file(path)  # before the work
        return write(path, self._page(self.figures()))

    def _page(self, drawn: Mapping[str, Any], up: str | None = None) -> bytes:
        return page(self.results, {name: picture(figure) for name, figure in drawn.items()}, up).encode()

    def content(self) -> dict[str, Any]:
        """`settings`, `verdict` and `tables`, a table as a dict of its columns."""
        tables = {name: getattr(self.results, name).to_dict("list") for name in TABLES}
        return {"settings": self.results.settings, "verdict": self.verdict, "tables": tables}

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report as strict JSON, written to `path` if there is one.

        An object of `settings`, `verdict` and `tables`; a table is an object of columns, so that
        `pandas.DataFrame(tables["ood"])` gives it back. NaN and infinite numbers are null.
        """
        if path is not None:
            check_file(path)
        text = json.dumps(strict(self.content()), ensure_ascii=False, allow_nan=False) + "\n"
        if path is not None:
            write(path, text.encode())
        return text

    def save(
        self, folder: str | os.PathLike[str], drawn: Mapping[str, Any] | None = None, *, up: str | None = None
    ) -> list[Path]:
        """Write report.html, report.md, report.json and a PNG file for each figure into `folder`.

        Args:
            folder: made if it is not there.
            drawn: what `figures()` gave, if they are drawn already.
            up: where a link at the head of the page goes, if the report is one of several.

        Returns:
            The paths, report.html first.
        """
        folder = check_folder(folder, FILES)
        drawn = self.figures() if drawn is None else drawn
        links = {name: f"{name}.png" for name in drawn}
        paths = [write(folder / "report.html", self._page(drawn, up))]
        paths.append(write(folder / "report.md", markdown(self.results, links).encode()))
        self.to_json(folder / "report.json")
        paths.append(folder / "report.json")
        return paths + [write(folder / links[name], image(figure, "png")) for name, figure in drawn.items()]

    def __repr__(self) -> str:
        return "\n".join([f"Report: {headline(self.results)}", *(f"- {sentence}" for sentence in self.verdict)])

    def _repr_html_(self) -> str:
        """For notebooks: the verdict and the main tables."""
        return notebook(self.results)


def image(figure: Any, kind: str) -> bytes:
    """A figure as "svg" or "png", the same bytes each time."""
    buffer = BytesIO()
    with (
        require("matplotlib", purpose="figures need").rc_context({"svg.hashsalt": "torch_boc"}),
        warnings.catch_warnings(),
    ):
        # A name in a script that the font lacks is drawn as boxes; the tables have it right.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(buffer, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else {"Software": None})
    figure.set_layout_engine("none")  # the layout is found: another drawing need not search for it again
    return buffer.getvalue()


def picture(figure: Any) -> Picture:
    """A figure for the page: sharp at any size, unless that takes too much room."""
    wide, content = bool(figure.get_size_inches()[0] > PANEL[0]), image(figure, "svg")
    if len(content) > LARGEST_SVG:
        return Picture(image(figure, "png"), "image/png", wide)
    return Picture(content, "image/svg+xml", wide)


def write(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file that appears whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return Path(path)


def strict(value: Any) -> Any:
    """`value` in terms of JSON: numbers of other libraries as Python's, and null for NaN and infinities."""
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
