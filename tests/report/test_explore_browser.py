"""The page to explore in a real browser: slider, pointer, sorting and keys. Nothing is loaded."""

import re

import pytest

from tests.browser import Watched, browser  # noqa: F401
from tests.evaluation.cases import make_set
from tests.report.cases import make_results
from torch_boc.evaluation import evaluate
from torch_boc.report import Report

ODD = "odd <b>set</b>"


@pytest.fixture(scope="module")
def report():
    oods = {"far": make_set("far", 600, 1, 0.0), ODD: make_set("x", 60, 2, 1.0, targets=False)}
    return evaluate(make_set("id", 1500, 0), oods, calibration=make_set("val", 400, 4), replicates=20)


@pytest.fixture(scope="module")
def folder(report, tmp_path_factory):
    place = tmp_path_factory.mktemp("explore")
    report.save(place)
    Report(make_results()).explore(place / "bare.html")
    two = {"far": make_set("far", 300, 1, 0.0, classes=2)}
    evaluate(make_set("id", 400, 0, classes=2), two, replicates=5).explore(place / "two.html")
    return place


@pytest.fixture
def opened(browser, folder):  # noqa: F811
    with Watched(browser, folder / "explore.html") as watched:
        watched.page.locator("#coherence .main-svg").first.wait_for()
        yield watched
        assert watched.said == []
        assert watched.asked == []


def flagged(page):
    """The shares in the table below the slider, by the name of the set."""
    rows = page.locator("#flagged tbody tr").all()
    names = [row.locator("th").inner_text().removesuffix(" (false alarms)") for row in rows]
    return dict(zip(names, [float(row.locator("td").first.inner_text().split()[0]) for row in rows], strict=True))


def below(report, score, name, threshold):
    table = report.results.alarms
    rows = table[(table["score"] == score) & (table["set"] == name)]
    return 100 * rows.iloc[(rows["threshold"] - threshold).abs().argmin()]["flagged"]


def test_all_panels_are_there(opened):
    assert opened.page.locator("h2").all_inner_texts() == [
        "Where to draw the line",
        "ROC curves",
        "Reliability",
        "Δ against confidence, sample by sample",
        "The most suspicious samples",
        "Symbols",
    ]
    assert opened.page.locator(".plot .main-svg").count() >= 4
    assert not opened.page.locator(".missing").count()


def test_the_slider_moves_by_keys_and_says_what_it_shows(opened, report):
    page, slider = opened.page, opened.page.locator("#threshold")
    assert flagged(page)["id"] == pytest.approx(5.0, abs=0.06)
    slider.focus()
    for key in ("ArrowRight",) * 12 + ("ArrowLeft",) * 2:
        page.keyboard.press(key)
    live = page.locator("#live").inner_text()
    threshold = float(re.match(r"MSP below (\S+):", live)[1])
    shown = flagged(page)
    for name, share in shown.items():
        assert share == pytest.approx(below(report, "msp", name, threshold), abs=0.06)
    assert shown["id"] > 5.0
    assert f"{shown['far']:.1f}\u00a0% of far" in live
    assert ODD in live
    assert slider.get_attribute("aria-valuetext") == live.split(";")[0].rstrip(".")
    page.keyboard.press("Home")
    assert flagged(page)["id"] == 0
    page.keyboard.press("End")
    assert flagged(page)["id"] > 90


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["explore", "bare", "report"])
def test_axe_finds_nothing(browser, folder, name, dark):  # noqa: F811
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    with Watched(browser, folder / f"{name}.html", dark=dark) as watched:
        found = axe.Axe().run(watched.page).response["violations"]
        assert [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in found] == []
        assert watched.said == watched.asked == []


def test_the_report_leads_to_the_page_and_back(browser, folder):  # noqa: F811
    with Watched(browser, folder / "report.html") as watched:
        watched.page.get_by_role("link", name="Explore these numbers").click()
        assert watched.page.title() == "Bag-of-Coins report: explore"
        watched.page.get_by_role("link", name="The report").click()
        assert watched.page.title() == "Bag-of-Coins report"
