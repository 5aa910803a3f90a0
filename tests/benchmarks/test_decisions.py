"""The committed page of decisions: its tables are those of the code, but for the streams, which take minutes."""

import pytest

from benchmarks import decisions
from torch_boc import zoo
from torch_boc.kernels import use

pytestmark = pytest.mark.filterwarnings("ignore:nothing can be flagged in", "ignore:far fewer than alpha")


@pytest.fixture(autouse=True)
def _as_the_page():
    with use("torch"):
        yield


def lines(rows):
    return ["| " + " | ".join(row) + " |" for row in rows]


@pytest.mark.parametrize("name", zoo.names())
def test_levels_and_discoveries_are_those_of_the_code(name):
    """If this fails, the page is out of date: run `python -m benchmarks.decisions`."""
    page, entry = decisions.PAGE.read_text(encoding="utf-8"), zoo.load(name)
    for line in lines([*decisions.level_rows(entry), *decisions.discovery_rows(entry)]):
        assert line in page


def test_a_row_of_streams_has_all_columns(monkeypatch):
    monkeypatch.setattr(decisions, "STREAMS", 2)
    rows = list(decisions.stream_rows(zoo.load("resnet20-cifar10")))
    assert [row[:2] for row in rows] == [["resnet20-cifar10", "0"], ["resnet20-cifar10", "1,000"]]
    page = decisions.PAGE.read_text(encoding="utf-8")
    for row in rows:
        assert len(row) == 9
        assert any(line.startswith(f"| {row[0]} | {row[1]} |") for line in page.splitlines())


def test_numbers_of_samples():
    assert decisions.quantile([5.0, 1.0, 3.0], 0.5) == "3"
    assert decisions.quantile([5.0, float("inf")], 0.9) == "none"
