"""Several reports side by side."""

import json
import os
import re
import unicodedata
from urllib.parse import unquote

import pytest

from tests.report.cases import LEAK, Outline, make_results
from torch_boc.report.comparison import Comparison, cards
from torch_boc.report.render import html_text
from torch_boc.report.report import Report
from torch_boc.report.results import frame


@pytest.fixture(scope="module")
def comparison():
    full, bare = make_results((LEAK, "held out")), make_results((), (), targets=False)
    return Comparison({"ResNet <20>": Report(full), "no/targets": Report(bare)})


def test_differences_have_a_column_for_each_model_and_a_row_for_each_score():
    rows = [(model, "a", *x, 0) for model in "bc" for x in (("msp", "svhn", 0.1, 0.05, 0.2), ("gen", "svhn", 0, -1, 1))]
    (table,) = Comparison({x: Report(make_results()) for x in "abc"}, differences=frame("differences", rows)).tables()
    assert table.columns == ["", "b", "c"]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["confidence", *["+0.1000"] * 2],
        ["GEN", *["0.0000"] * 2],
    ]
    assert [[cell.best for cell in row[1:]] for row in table.rows] == [[True, True], [False, False]]


def test_the_first_card_is_coverage_and_carries_its_condition(comparison):
    (first, coverage, _), (second, calibration, _), *_ = cards(comparison.reports)
    guaranteed = "error ≤ 1 % with 95 % probability, if samples are exchangeable with the held-out set."
    assert (first, coverage) == ("Coverage at ≤ 1 % error", f"69.8 % of predictions can be accepted: {guaranteed}")
    assert (second, calibration) == ("Calibration", "ECE 5.3 %, 1.1 % after calibration.")


def test_a_guarantee_that_is_void_is_not_compared():
    good, bad, none = (make_results(("val",)) for _ in range(3))
    bad.settings["violations"] = ["error", "flagged"]
    none.acceptance["accepted"] = 0.0
    reports = {"a": Report(good), "b": Report(bad), "c": Report(none)}
    assert [row[3].text for row in Comparison(reports).glance().rows] == ["69.8 %", "not valid", "none"]
    assert [report.summary()["accepted"] for report in reports.values()] == [0.698, 0.0, 0.0]
    texts = {title: text for title, text, _ in cards(reports)}
    assert texts["Coverage at ≤ 1 % error"].endswith("held-out set. None for b and c.")
    assert "It is not valid for b, whose held-out samples look different." in texts["OOD detection"]
    assert not any("not valid" in text or "None" in text for _, text, _ in cards({"a": reports["a"]}))


def test_differences_belong_to_a_report():
    rows = frame("differences", [("b", "a", "accuracy", "", 0.1, 0.0, 0.2, 0)])
    with pytest.raises(ValueError, match="expected differences of models among a, got 'b'"):
        Comparison({"a": Report(make_results())}, differences=rows)


def test_json_has_every_report(comparison):
    content = json.loads(comparison.to_json(), parse_constant=pytest.fail)
    assert content == {name: json.loads(report.to_json()) for name, report in comparison.reports.items()}


def test_page_links_to_each_report(comparison, tmp_path):
    paths = comparison.save(tmp_path)
    assert paths[0] == tmp_path / "index.html"
    assert all(path.exists() for path in paths)
    source = paths[0].read_text(encoding="utf-8")
    outline = Outline(source)
    assert len(outline.all("h3")) == 2
    assert outline.all("img") == []
    assert "<20>" not in source
    for folder in ("ResNet--20-", "no-targets"):
        assert (tmp_path / folder / "report.html") in paths
        assert f"href='{folder}/report.html'" in source
        assert "href='../index.html'" in (tmp_path / folder / "report.html").read_text(encoding="utf-8")
    for text, _ in comparison.reports["no/targets"].story.actions:
        assert html_text(text) in source
    (tmp_path / "training" / "ViT").mkdir(parents=True)
    (tmp_path / "training" / "ViT" / "boc.html").write_text("a page")
    comparison.save(tmp_path)
    assert "<a href='training/ViT/boc.html'>ViT</a>." in paths[0].read_text(encoding="utf-8")


HOSTILE = [
    *("a b", "a-b", "a/b", "A-B", "a-b-2", "index.html", "INDEX.HTML", "..", ".", "", " ", "/etc/passwd", "../../up"),
    *("x" * 400, "x" * 401, "é", "e\u0301", "日本", "ﬁ", "con", "a\x1b[31m", "a#b?c%20", "tail.", "q'\"<i>"),
]


def test_every_model_has_a_folder_of_its_own(tmp_path):
    results = [make_results() for _ in HOSTILE]
    for i, x in enumerate(results):
        x.settings["title"] = f"report number {i}"
    comparison = Comparison({name: Report(x) for name, x in zip(HOSTILE, results, strict=True)})
    paths = comparison.save(tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
    folders = [path.parent.name for path in paths if path.name == "report.html"]
    assert len(folders) == len(HOSTILE)
    alike = {unicodedata.normalize("NFKC", folder).casefold() for folder in folders}
    assert len(alike) == len(HOSTILE)  # where case and composition do not count, too
    assert "index.html" not in alike
    assert max(len(os.fsencode(folder)) for folder in folders) <= 200
    source = paths[0].read_text(encoding="utf-8")
    links = re.findall(r"<h3><a href='([^']*)'>([^<]+)</a>", source)
    assert len(links) == len(HOSTILE)
    for i, (link, shown) in enumerate(links):
        target = tmp_path / "out" / unquote(link)
        assert f"<h1>report number {i}" in target.read_text(encoding="utf-8")
        assert shown.strip()


def test_names_that_look_the_same_are_refused():
    with pytest.raises(ValueError, match="expected at least one report to compare, got none"):
        Comparison({})
    reports = {name: Report(make_results()) for name in ("a\x1b", r"a\x1b")}
    with pytest.raises(ValueError, match="expected names that differ when they are printed"):
        Comparison(reports)
    with pytest.raises(TypeError, match="expected names of models as strings, got 3"):
        Comparison({3: Report(make_results())})


@pytest.mark.parametrize("blocked", ["index.html", "b/report.md", "b/roc.svg"])
def test_what_cannot_be_written_is_known_before_anything_is_drawn(tmp_path, monkeypatch, blocked):
    (tmp_path / blocked).mkdir(parents=True)
    monkeypatch.setattr("torch_boc.report.report.make_narrative", lambda results: pytest.fail("drawn"))
    with pytest.raises(IsADirectoryError, match=blocked):
        Comparison({name: Report(make_results()) for name in "ab"}).save(tmp_path)
    assert not (tmp_path / "a").exists()
