"""The page to explore: one file with the numbers of the report, and panels without numbers are left out by name."""

import json
import re

import pytest

from tests.evaluation.cases import make_set
from tests.report.cases import make_results
from torch_boc._optional import has
from torch_boc.evaluation import evaluate
from torch_boc.report.explore import COHERENCE, LIST, RELIABILITY, ROC, THRESHOLD, explore_data, explore_page
from torch_boc.report.report import FILES

HOSTILE = "</script><b>'\"&{{ 7 + 7 }}"


@pytest.fixture(scope="module")
def report():
    return evaluate(
        make_set("id", 400, 0), {"far": make_set("far", 300, 1, 0.0), HOSTILE: make_set("x", 50, 2, 1.0)}, replicates=20
    )


@pytest.fixture(scope="module")
def source(report):
    return explore_page(report.results)


def without_plotly(source):
    """The page without the large script in the middle."""
    first, last = source.index("<script>"), source.rindex("<script>")
    return source[:first] + source[last:]


def data_of(source):
    return json.loads(re.search("<script type='application/json' id='data'>(.*?)</script>", source)[1])


def test_the_numbers_of_the_page_are_those_of_the_tables(report, source):
    data, results = data_of(source), report.results
    assert data["known"] == "id"
    assert data["sets"] == ["id", "far", HOSTILE]
    samples = results.samples
    assert data["samples"]["row"] == samples["row"].tolist()
    assert data["samples"]["confidence"] == pytest.approx(samples["confidence"].tolist(), rel=1e-4)
    alarms = results.alarms[(results.alarms["score"] == "energy") & (results.alarms["set"] == "far")]
    assert data["alarms"]["energy"]["flagged"]["far"] == pytest.approx(alarms["flagged"].tolist(), abs=1e-5)
    assert data["alarms"]["energy"]["thresholds"] == pytest.approx(alarms["threshold"].tolist(), rel=1e-4)
    assert "structural_score" not in data["alarms"]
    assert [curve["name"].split()[0] for curve in data["roc"]["far"]][:2] == ["MSP", "energy"]


def test_bins_of_minus_the_gap_rise_like_those_of_other_scores(report):
    for part in explore_data(report.results)["alarms"].values():
        assert part["bins"]["edges"] == sorted(part["bins"]["edges"])
        for shares in part["bins"]["shares"].values():
            assert len(shares) == len(part["bins"]["edges"]) - 1
            assert sum(shares) == pytest.approx(1, abs=1e-3)


def test_the_band_of_two_classes_has_no_width():
    results = evaluate(make_set("id", 100, 0, classes=2), replicates=5).results
    band = explore_data(results)["band"]
    assert set(band["least"]) == set(band["most"]) == {0}


def test_the_page_is_one_file_and_its_own_part_is_small(source):
    assert source.count("<script") == 3
    own = without_plotly(source)
    assert len(own) < 400_000
    assert "http" not in own
    assert not re.search(r"<(link|iframe|object|img)\b|\bsrc=|@import|url\(", own)


def test_names_of_sets_cannot_leave_their_place(source):
    assert "</script><b>" not in without_plotly(source).replace("</script>\n", "")
    assert "{{ 7 + 7 }}" in without_plotly(source)
    assert "14" not in re.findall(r"<option[^>]*>([^<]*)<", source)


def test_a_report_without_samples_names_what_is_left_out():
    page = explore_page(make_results())
    own = without_plotly(page)
    for name, present in ((THRESHOLD, False), (ROC, True), (RELIABILITY, True), (COHERENCE, False), (LIST, False)):
        assert (f"<h2>{name}</h2>" in own) == present
        assert (f"“{name}” (" in own) != present
    assert data_of(page)["samples"] == {}


def test_the_report_links_to_the_page_that_was_written(report, tmp_path):
    paths = report.save(tmp_path)
    assert paths[-1] == tmp_path / "explore.html"
    assert "<a href='explore.html'>" in paths[0].read_text(encoding="utf-8")
    assert "explore.html" not in report.to_html(tmp_path / "alone.html").read_text(encoding="utf-8")
    assert "explore.html" in FILES


def test_a_missing_package_is_an_error_that_names_the_extra(report, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "plotly", None)
    assert not has("plotly")
    with pytest.raises(ImportError, match=r"the page to explore needs plotly: pip install 'torch-boc\[eval\]'"):
        report.explore(tmp_path / "explore.html")
    assert list(tmp_path.iterdir()) == []
