"""A plugin of pytest that writes the name of the first test that fails into the file that `KILLER` names."""

import os
from pathlib import Path

import pytest


def _record(report: pytest.TestReport | pytest.CollectReport) -> None:
    file = Path(os.environ["KILLER"])
    if report.failed and not file.exists():
        file.write_text(report.nodeid, encoding="utf-8")


pytest_runtest_logreport = _record
pytest_collectreport = _record
