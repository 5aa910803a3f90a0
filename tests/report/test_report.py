"""The report as HTML, Markdown, JSON, SVG and files."""

import json
import re
from xml.etree import ElementTree

import pandas as pd
import pytest
import torch

from tests.golden import assert_golden
from tests.report.cases import LEAK, NAN, Outline, make_results
from torch_boc.plots import CYCLE
from torch_boc.report.chart import Chart, ticks
from torch_boc.report.comparison import Comparison
from torch_boc.report.render import TEMPLATES
from torch_boc.report.report import FIGURES, FILES, Report, read_report, strict
from torch_boc.report.results import TABLES, Results, frame

EVIL = "' onload='x\" {{ 7 + 7 }} <b>x</b>|*y*"
MANY = ("svhn", "cifar100", EVIL, "$a_b$", "_hidden", "six", "a name that is far too long for any legend at all")


@pytest.fixture(scope="module")
def report():
    return Report(make_results(("held out", LEAK)))


def test_tables_are_those_of_the_results(report):
    assert report.calibration is report.results.calibration
    assert report.ood is report.results.ood
    for name in TABLES:
        assert set(getattr(report.results, name)) == set(frame(name))


def tags_and_attributes(source):
    return [(tag, sorted(attributes)) for tag, attributes in Outline(source).tags]


@pytest.mark.parametrize("wrap", [lambda report: report, lambda report: Comparison({"one": report})])
def test_names_cannot_write_html_or_markdown(wrap, tmp_path):
    plain, hostile = (Report(make_results((name + "2",), (name,))) for name in ("svhn", EVIL))
    pages = [wrap(x).save(tmp_path / str(i))[0].read_text(encoding="utf-8") for i, x in enumerate((plain, hostile))]
    assert tags_and_attributes(pages[0]) == tags_and_attributes(pages[1])
    assert EVIL in Outline(pages[1]).text
    named = {**plain.results.settings, "title": EVIL, "class_names": [EVIL] * 10}
    whole = Report(Results(named, plain.results.tables)).to_html(tmp_path / "named.html")
    texts = [pages[1], hostile._repr_html_(), hostile.to_markdown(), whole.read_text(encoding="utf-8")]
    assert not any("<b>x" in text for text in texts)
    assert "{{ 7 + 7 }}" in hostile.to_markdown()


def test_no_template_switches_escaping_off():
    for path in TEMPLATES.glob("*.jinja"):
        assert not {"safe", "autoescape"} & set(re.findall(r"\w+", path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("splits", "ood", "targets"),
    [((), (), False), ((), (), True), (("held out",), ("a", "b"), True), ((), ("svhn",), False)],
)
def test_missing_parts_are_left_out(splits, ood, targets, tmp_path):
    report = Report(make_results(splits, ood, targets))
    outline = Outline(report.to_html(tmp_path / "report.html").read_text(encoding="utf-8"))
    sections = report.story.sections
    tables = [table for section in sections for part in (section.tables, *section.more.values()) for table in part]
    captions = [region["aria-label"] for region in outline.all("div") if "aria-label" in region]
    assert sorted(captions) == sorted(table.caption for table in tables if table.rows)
    assert len(outline.all("svg")) == len(report.figures())
    assert "nan" not in re.sub(r"\w*nan\w+|\w+nan\w*", "", outline.text)
    assert report.story.finding in outline.text
    assert repr(report)


def refuse(name):
    raise AssertionError(name)


def test_json_is_strict_and_gives_the_tables_back(report, tmp_path):
    text = report.to_json()
    content = json.loads(text, parse_constant=refuse)
    assert content["verdict"] == report.verdict
    assert report.verdict[0] in text  # no escapes for letters of other languages
    assert content["finding"] == report.story.finding == "Overconfident: ECE 5.3 %; vector scaling improves it to 1.1 %"
    assert content["settings"] == {**report.results.settings}
    for written in (report, Report(make_results((), (), targets=False))):
        written.save(tmp_path)
        again = read_report(tmp_path / "report.json")
        assert again.verdict == written.verdict
        for name in TABLES:
            table = getattr(written.results, name)
            pd.testing.assert_frame_equal(getattr(again.results, name)[list(table)], table, check_dtype=False)


def test_strict_values():
    tensor, table = torch.tensor(2.5), pd.DataFrame({"a": [True, False]})
    assert strict({"a": NAN, 1: (float("inf"), 2)}) == {"a": None, "1": [None, 2]}
    assert strict(tensor) == 2.5
    assert strict(table["a"].iloc[0]) is True
    assert strict(pd.Timestamp("2026-01-02")) == "2026-01-02 00:00:00"


def test_a_second_report_leaves_nothing_of_the_first(report, tmp_path):
    paths = report.save(tmp_path / "new" / "folder")
    names = ["report.html", "report.md", "report.json"]
    names += [f"{name}.svg" for name in ("reliability", "review", "roc", "stream", "coherence")]
    assert [path.name for path in paths] == names
    text = paths[1].read_text(encoding="utf-8")
    assert all(f"({path.name})" in text for path in paths[3:])
    (paths[0].parent / "mine.svg").write_text("kept")
    fewer = Report(make_results((), (), targets=False)).save(paths[0].parent)
    found = {path.name for path in paths[0].parent.iterdir()}
    assert found == {path.name for path in fewer} | {"mine.svg"}
    assert "roc.svg" not in found


@pytest.mark.parametrize(("splits", "ood"), [((), ()), (("held out", LEAK), ("svhn",)), ((), MANY)])
def test_figures_are_svg_that_tell_their_numbers(splits, ood):
    results = make_results(splits, ood)
    figures = Report(results).figures()
    assert {"reliability", "review", "coherence"} | ({"roc", "stream"} if ood else set()) <= set(figures)
    assert {f"{name}.svg" for name in figures} <= set(FILES)
    assert set(figures) <= set(FIGURES)
    for figure in figures.values():
        assert ElementTree.fromstring(figure).get("aria-label")
        assert re.search(r"\d+\.\d+,\d+\.\d+", figure)
        assert not re.search(r"\bnan\b", figure)
    rows = results.reliability.query("samples >= 10 and method in ['MSP', 'vector scaling', 'BoC']")
    assert figures["reliability"].count("<title>") == len(rows)
    filled = results.coherence.query("samples > 0").groupby("set", sort=False).size()
    assert figures["coherence"].count("<title>") == filled[: len(CYCLE)].sum()


def test_points_are_where_they_belong():
    chart = Chart("x", "y", (0, 10), (0, 5), height=246)
    assert chart.position(0, 0) == (52, 200)
    assert chart.position(10, 5) == (452, 0)
    assert chart.position(99, -1) == (452, 200)  # beyond the ends
    assert all(low <= x <= high for low, high in ((0.2, 1.0), (-3.0, 4.0), (0.0, 1e-9)) for x in ticks(low, high))


def test_short_forms(report):
    lines = repr(report).split("\n")
    assert lines[0] == "Report: Overconfident: ECE 5.3 %; vector scaling improves it to 1.1 %"
    assert lines[1].startswith("test 10,000, svhn 26,032, held out 5,000, training samples 5,000 · accuracy 91.7 %")
    assert lines[2:] == [f"- {sentence}" for sentence in report.verdict]
    fragment = Outline(report._repr_html_())
    assert {"test against svhn", "Lowest precision"} <= {x.get("aria-label") for x in fragment.all("div")}
    assert len(fragment.all("li")) == len(report.verdict)
    assert len(fragment.all("svg")) == 1


def tag_outline(path):
    """The tags of a page and what is drawn, without its words: those are in the Markdown."""
    page = Outline(path.read_text(encoding="utf-8"))
    words = {"aria-label", "content", "data-text", "title", "value"}
    lines = []
    for (tag, attributes), (_, within) in zip(page.tags, page.within, strict=True):
        shown = "".join(f" {name}={value}" for name, value in attributes.items() if name not in words)
        lines.append(f"{'  ' * len(within)}{tag}{shown}")
    return "\n".join(lines) + "\n"


def test_golden_files(tmp_path):
    full = Report(make_results(("held out", LEAK), ("svhn", "far")))
    differences = [("b", "a", "accuracy", "", 0.012, 0.004, 0.02, 1), ("b", "a", "ECE", "", 0.001, -0.002, 0.004, 0)]
    differences += [("b", "a", "energy", "svhn", -0.02, -0.03, -0.01, 0)]
    both = Comparison({"a": full, "b": Report(make_results())}, differences=frame("differences", differences))
    index = both.save(tmp_path)[0]
    texts = {
        "full.md": full.to_markdown(),
        "full.html": tag_outline(full.to_html(tmp_path / "full.html")),
        "bare.md": Report(make_results((), (), targets=False)).to_markdown(),
        "index.html": tag_outline(index),
        "index.txt": re.sub(r"\s*\n\s*", "\n", Outline(index.read_text(encoding="utf-8")).text),
    }
    assert_golden(__file__, texts)
