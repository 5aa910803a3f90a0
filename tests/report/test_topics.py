"""A topic that is added to the list stands in every output."""

from io import StringIO

import pytest
from rich.console import Console

from tests.report.cases import Outline, make_results
from torch_boc.cli import render
from torch_boc.plots import new_axes
from torch_boc.report import topics
from torch_boc.report.comparison import Comparison
from torch_boc.report.parts import Cell, Figure, Table, Topic
from torch_boc.report.report import Report


def draw(results):
    figure, (axis,) = new_axes(1, None)
    axis.plot([0, 1], [0, results.settings["classes"]])
    return figure


HOSTILE = "Weather & <wind>"
WEATHER = Topic(
    HOSTILE,
    lambda results: f"It rains on {results.known}.",
    lambda results: [
        Table("Rain by set", ["set", "rain"], [[Cell(results.known), Cell("12.5")]], heading="Rain today")
    ],
    (Figure("weather", draw, "Rain over the day.", lambda results: "A line of rain"),),
    sentences=(lambda results: ["Take an umbrella."],),
    details=(lambda results: ["The wind is weak."],),
    contrast=lambda: [(Cell("rain"), lambda results: Cell("12.5"))],
    glossary=(("rain", "water that falls."),),
)


@pytest.fixture
def report(monkeypatch):
    monkeypatch.setattr(topics, "TOPICS", (*topics.TOPICS, WEATHER))
    return Report(make_results())


def test_on_the_page(report, tmp_path):
    outline = Outline(report.to_html(tmp_path / "report.html").read_text(encoding="utf-8"))
    for text in (HOSTILE, "It rains on test.", "Rain by set", "Take an umbrella.", "The wind is weak.", "12.5"):
        assert outline.text.count(text) == 1
    assert "Rain over the day." in outline.text
    assert outline.text.count("water that falls.") == 2  # where it first appears, and in the list of all symbols
    assert outline.all("img")[-1]["alt"] == "A line of rain."


def test_in_markdown_and_files(report, tmp_path):
    paths = report.save(tmp_path)
    assert [path.name for path in paths[-2:]] == ["weather.png", "explore.html"]
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "## Weather &amp; &lt;wind>\n\nIt rains on test." in text
    assert "| set | rain |\n| :-- | --: |\n| test | 12.5 |" in text
    assert "![A line of rain.](weather.png)" in text
    assert "- Take an umbrella.\n- The wind is weak." in text


def test_in_the_notebook_and_the_verdict(report):
    assert "Rain by set" in report._repr_html_()
    assert report.verdict[-2:] == ["Take an umbrella.", "The wind is weak."]
    assert report.content()["verdict"] == report.verdict
    assert list(report.figures())[-1] == "weather"


def test_in_the_terminal(report):
    console = Console(width=80, file=StringIO())
    render.show_report(report, console)
    text = console.file.getvalue()
    assert "\nRain today\n" in text
    assert "12.5" in text
    assert "water that falls." in text


def test_side_by_side(report):
    comparison = Comparison({"one": report, "two": report})
    assert [[cell.text for cell in row] for row in comparison.table().rows if row[0].text == "rain"] == [
        ["rain", "12.5", "12.5"]
    ]
    assert "Take an umbrella." in comparison.sentences("one")
    assert "The wind is weak." not in comparison.sentences("one")
