"""A plugin of pytest that writes the name of the first test that fails into the file that `KILLER` names.

A test that takes too long fails as well: a fault can make a loop endless.
"""

import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

SECONDS = 120  # for one test


def _record(report: pytest.TestReport | pytest.CollectReport) -> None:
    file = Path(os.environ["KILLER"])
    if report.failed and not file.exists():
        file.write_text(report.nodeid, encoding="utf-8")


pytest_runtest_logreport = _record
pytest_collectreport = _record


def _stop(*_: Any) -> None:
    raise TimeoutError(f"expected a test of less than {SECONDS} seconds, got one that goes on")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """Let the test fail when its time is over."""
    before = signal.signal(signal.SIGALRM, _stop)
    signal.alarm(SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
