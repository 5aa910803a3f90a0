"""A plugin of pytest that writes the name of the first test that fails, and how long each test took, into files.

A test that takes too long fails as well: a fault can make a loop endless.
"""

import json
import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

LIMIT = 120  # seconds for one test
SECONDS: dict[str, float] = {}


def pytest_collectreport(report: pytest.CollectReport | pytest.TestReport) -> None:
    """Record a failure."""
    file = Path(os.environ["KILLER"])
    if report.failed and not file.exists():
        file.write_text(report.nodeid, encoding="utf-8")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record a failure, and the time."""
    SECONDS[report.nodeid] = SECONDS.get(report.nodeid, 0.0) + report.duration
    pytest_collectreport(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the times; the processes of pytest-xdist leave that to the first."""
    if not hasattr(session.config, "workerinput"):
        Path(os.environ["SECONDS"]).write_text(json.dumps(SECONDS), encoding="utf-8")


def _stop(*_: Any) -> None:
    raise TimeoutError(f"expected a test of less than {LIMIT} seconds, got one that goes on")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """Let the test fail when its time is over."""
    before = signal.signal(signal.SIGALRM, _stop)
    signal.alarm(LIMIT)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
