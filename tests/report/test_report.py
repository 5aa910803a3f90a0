"""The report as HTML, Markdown, JSON and files."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import torch

from tests.report.cases import LEAK, NAN, Outline, make_results
from torch_boc.report.report import TABLES, Report, strict

EVIL = "<b>x</b>|*y*"


@pytest.fixture(scope="module")
def report():
    return Report(make_results(("held out", LEAK)))


@pytest.fixture
def undrawn(monkeypatch):
    """For tests that look at everything but the images."""
    monkeypatch.setattr("torch_boc.report.document.image", lambda figure, kind: b"PNG")


def test_tables_are_those_of_the_results(report):
    assert report.calibration is report.results.calibration
    assert report.ood is report.results.ood
    assert list(report.diagnostics) == [
        *("leaks", "overlaps", "gaps", "trials", "coherence", "reliability"),
        *("screening", "thresholds", "stream"),
    ]
    assert report.diagnostics["gaps"] is report.results.gaps
    assert list(report.figures()) == ["reliability", "roc", "scores", "stream", "coherence", "gaps", "trials"]


def test_names_cannot_write_html_or_markdown(undrawn, tmp_path):
    report = Report(make_results((EVIL + "2",), (EVIL,)))
    source = report.to_html(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<b>" not in source
    assert "&lt;b&gt;x&lt;/b&gt;" in source
    assert EVIL in Outline(source).text
    assert "<b>" not in report._repr_html_()
    assert "<b>" not in report.to_markdown()


@pytest.mark.parametrize(
    ("splits", "ood", "targets", "tables"),
    [((), (), False, 4), ((), (), True, 6), (("held out",), ("a", "b"), True, 9), ((), ("svhn",), False, 6)],
)
def test_missing_parts_are_left_out(splits, ood, targets, tables, undrawn, tmp_path):
    report = Report(make_results(splits, ood, targets))
    outline = Outline(report.to_html(tmp_path / "report.html").read_text(encoding="utf-8"))
    assert len(outline.all("table")) == tables
    assert len(outline.all("img")) == len(report.figures())
    assert "nan" not in re.sub(r"\w*nan\w+|\w+nan\w*", "", outline.text)
    assert repr(report)


def refuse(name):
    raise AssertionError(name)


def test_json_is_strict_and_gives_the_tables_back(report, tmp_path):
    text = report.to_json(tmp_path / "report.json")
    assert (tmp_path / "report.json").read_text(encoding="utf-8") == text
    content = json.loads(text, parse_constant=refuse)
    assert content["verdict"] == report.verdict
    assert content["settings"] == {**report.results.settings}
    assert set(content["tables"]) == set(TABLES)
    for name, columns in content["tables"].items():
        table = getattr(report.results, name)
        pd.testing.assert_frame_equal(pd.DataFrame(columns).astype(table.dtypes), table)


def test_strict_values():
    tensor, frame = torch.tensor(2.5), pd.DataFrame({"a": [True, False]})
    assert strict({"a": NAN, 1: (float("inf"), 2)}) == {"a": None, "1": [None, 2]}
    assert strict(tensor) == 2.5
    assert strict(frame["a"].iloc[0]) is True
    assert strict(pd.Timestamp("2026-01-02")) == "2026-01-02 00:00:00"


def test_save(report, tmp_path):
    paths = report.save(tmp_path / "new" / "folder")
    names = ["report.html", "report.md", "report.json"]
    names += [f"{name}.png" for name in ("reliability", "roc", "scores", "stream", "coherence", "gaps", "trials")]
    names.append("explore.html")
    assert [path.name for path in paths] == names
    assert sorted(path.name for path in paths[0].parent.iterdir()) == sorted(names)
    for path in paths[3:-1]:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert f"({path.name})" in paths[1].read_text(encoding="utf-8")


def test_short_forms(report):
    lines = repr(report).split("\n")
    assert lines[0].startswith("Report: test 10,000, svhn 26,032, held out 5,000, training samples 5,000")
    assert lines[1:] == [f"- {sentence}" for sentence in report.verdict]
    fragment = Outline(report._repr_html_())
    assert len(fragment.all("table")) == 3
    assert len(fragment.all("li")) == len(report.verdict)
    assert len(fragment.all("img")) == 1
    assert len(re.sub("data:[^']*", "", report._repr_html_())) < 22_000


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("full", lambda: make_results(("held out", LEAK), ("svhn", "far"))),
        ("bare", lambda: make_results((), (), targets=False)),
    ],
)
def test_markdown_is_the_golden_file(name, made):
    """After a wanted change: write `Report(made()).to_markdown()` into the file, and read the difference."""
    golden = Path(__file__).with_name("golden") / f"{name}.md"
    assert Report(made()).to_markdown() == golden.read_text(encoding="utf-8")
