"""Reports that were written as JSON, read again."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from .report import TABLES, Report
from .results import ROW_TYPES, Results, frame


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
    return Report(Results(_settings(settings), **read))


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    accuracy = settings.get("accuracy")
    return {"title": "", **settings, "accuracy": math.nan if accuracy is None else float(accuracy)}


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
