"""The outcome of an evaluation: tables, figures and what they say."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..data.atomic import check_file, check_folder, write
from ..data.errors import error_prefix
from .calibration import MSP
from .chart import SETS
from .format import BASELINE
from .render import cell_output, markdown, page
from .results import NAMES, TABLES, Results, frame, where
from .review import violated
from .story import Narrative, make_narrative

FIGURES = ("reliability", "review", "roc", "stream", "coherence", *(f"roc-{i}" for i in range(2, SETS + 1)))
FILES = ("report.html", "report.md", "report.json", *(f"{name}.svg" for name in FIGURES))
KINDS: Any = ((int | float | None, "numbers"), (str, "names"))  # of the columns of a table in JSON
# A figure in a file of its own has no page that gives it colours.
ON_WHITE = '<svg style="background:#fff;color:#1d2530" '


@dataclass(frozen=True, repr=False, eq=False)
class Report:
    """The results of `evaluate`. Every table and column is documented in `Results`.

    >>> from torch_boc.evaluation import evaluate
    >>> report = evaluate(torch.randn(100, 4), replicates=10)
    >>> print(report.verdict[0])
    “id” has no targets: calibration is not evaluated.
    >>> list(report.figures())
    ['coherence']
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

    @cached_property
    def story(self) -> Narrative:
        """The texts of the report: finding, numbers, actions, sections and figures."""
        return make_narrative(self.results)

    @property
    def verdict(self) -> list[str]:
        """What the numbers say, in sentences."""
        return self.story.verdict

    def figures(self) -> dict[str, str]:
        """Figures as SVG by name: reliability, review, roc, stream and coherence, as far as there are numbers."""
        return dict(self.story.figures)

    def to_markdown(self) -> str:
        """The report in GitHub-flavoured Markdown, without figures."""
        return markdown(self.story)

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as one self-contained HTML file.

        Returns:
            The path.
        """
        check_file(path)  # an error comes before the work
        return write(path, page(self.results, self.story).encode())

    def summary(self) -> dict[str, float]:
        """The main numbers by name: accuracy, accepted (at 1 % error), and of confidence ece, nll, brier, auroc, fpr95.

        Nothing is accepted where the guarantee is not valid. AUROC and FPR95 are those of the worst OOD set, and those
        of each, as in "auroc_svhn".
        """
        plain, numbers = where(self.calibration, method=MSP), {"accuracy": self.results.settings["accuracy"]}
        numbers |= {name: x for name in ("ece", "nll", "brier") for x in plain[name]}
        accepted = self.results.acceptance["accepted"][:1].max()
        numbers["accepted"] = accepted * 0 if violated(self.results) else accepted
        rows = where(self.ood, score=BASELINE)
        numbers |= {"auroc": rows["auroc"].min(), "fpr95": rows["fpr95"].max()}
        numbers |= {f"{x}_{ood}": y for x in ("auroc", "fpr95") for ood, y in zip(rows["ood"], rows[x], strict=True)}
        return {name: float(x) for name, x in numbers.items() if not math.isnan(x)}

    def content(self) -> dict[str, Any]:
        """A dict of `settings`, `finding`, `actions`, `verdict`, `numbers`, `summary` and `tables` of columns."""
        tables = {name: getattr(self.results, name).to_dict("list") for name in TABLES}
        story = self.story
        texts: dict[str, Any] = {"finding": story.finding, "actions": story.actions, "verdict": story.verdict}
        texts["numbers"] = [number._asdict() for number in story.numbers]
        return {"settings": self.results.settings, **texts, "summary": self.summary(), "tables": tables}

    def to_json(self) -> str:
        """The report as strict JSON.

        It is an object with the keys of `content`. A table is an object of its columns, which `pandas.DataFrame`
        restores. NaN and infinite numbers are null.
        """
        return json.dumps(strict(self.content()), ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, folder: str | os.PathLike[str], *, parent_link: str | None = None) -> list[Path]:
        """Write report.html, report.md, report.json and an SVG file for each figure into `folder`.

        Figures that an earlier report has left there, and that this one does not have, are removed.

        Args:
            folder: the folder, which is made if it does not exist.
            parent_link: a link to the page of all models, if the report is one of several.

        Returns:
            The paths of the files, report.html first.
        """
        folder, links = check_folder(folder, FILES), {name: f"{name}.svg" for name in self.story.figures}
        files = {"report.html": page(self.results, self.story, parent_link), "report.md": markdown(self.story, links)}
        files["report.json"] = self.to_json()
        for name, drawn in self.story.figures.items():
            files[links[name]] = drawn.replace("<svg ", ON_WHITE, 1)
        paths = [write(folder / name, text.encode()) for name, text in files.items()]
        for name in set(FILES) - set(files):
            (folder / name).unlink(missing_ok=True)
        return paths

    def __repr__(self) -> str:
        return "\n- ".join([f"Report: {self.story.finding}\n{self.story.headline}", *self.verdict])

    def _repr_html_(self) -> str:
        """The verdict, the main tables and a figure, which notebooks show."""
        story = self.story
        tables = [table for section in story.sections for table in section.tables if table.kind != "sortable"]
        return cell_output(story.finding, {"": story.verdict}, tables, list(story.figures.values())[:1])


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
    """The report in the file `report.json` that `Report.save` has written.

    Raises:
        ValueError: if the file is not such a report.

    >>> import tempfile
    >>> from torch_boc.evaluation import evaluate
    >>> report = evaluate(torch.randn(50, 3), replicates=5)
    >>> path = report.save(tempfile.mkdtemp())[2]
    >>> read_report(path).verdict == report.verdict
    True
    """
    with error_prefix(str(path)):
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"expected the JSON of a report, got a file that is not JSON ({error})") from None
        try:
            report = _restored(content)
            report.content()  # which needs all parts
        except ValueError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(
                f"expected the JSON of one report, got a damaged one ({reason}); write it again"
            ) from error
    return report


def _restored(content: Any) -> Report:
    if not isinstance(content, dict) or not {"samples", "classes"} <= set(content.get("settings", ())):
        raise ValueError("expected the JSON of one report, with settings and tables; got something else")
    settings, tables = content["settings"], content.get("tables", {})
    read = {}
    for name in TABLES:
        columns, wanted = tables.get(name, {}), list(frame(name))
        missing = [column for column in wanted if columns and column not in columns]
        if missing:
            raise ValueError(f"table {name!r}: expected a column {missing[0]!r}; write the report again")
        for column in wanted if columns else ():
            values, (kind, expected) = columns[column], KINDS[column in NAMES]
            if not isinstance(values, list) or not all(isinstance(x, kind) for x in values):
                raise ValueError(
                    f"table {name!r}: expected {expected} in {column!r}, got others; write the report again"
                )
        read[name] = frame(name, columns)
        loose = [x for x, kind in read[name].dtypes.items() if kind.kind == "O" and x not in NAMES]
        read[name] = read[name].astype(dict.fromkeys(loose, float))  # null is NaN
    if not len(read["gaps"]):
        raise ValueError("table 'gaps': expected one row per set, got none; write the report again")
    accuracy = settings.get("accuracy")
    settings = {"title": "", **settings, "accuracy": math.nan if accuracy is None else float(accuracy)}
    return Report(Results(settings, read))
