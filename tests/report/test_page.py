"""The page in a real browser: the slider, sorting and keys, in two widths and both schemes. Nothing is loaded."""

import re

import pytest

from tests.browser import Watched, browser  # noqa: F401
from tests.evaluation.cases import make_set
from tests.report.cases import make_results
from torch_boc.evaluation import Comparison, Report, evaluate

ODD = "odd <b>set</b>"


@pytest.fixture(scope="module")
def report():
    oods = {"far": make_set("far", 600, 1, 0.0), ODD: make_set("x", 60, 2, 1.0, targets=False)}
    return evaluate(make_set("id", 1500, 0), oods, calibration=make_set("val", 400, 4), replicates=20)


@pytest.fixture(scope="module")
def folder(report, tmp_path_factory):
    place = tmp_path_factory.mktemp("pages")
    report.save(place)
    Comparison({"a": report, "b": report}).save(place)
    Report(make_results((), (), targets=False)).to_html(place / "bare.html")
    evaluate(make_set("id", 400, 0, classes=2), replicates=5).to_html(place / "two.html")
    return place


def test_the_slider_moves_by_keys_and_says_what_it_shows(browser, folder, report):  # noqa: F811
    with Watched(browser, folder / "report.html") as watched:
        page, slider = watched.page, watched.page.locator("#share")
        slider.focus()
        assert "Review" in page.locator("#live").inner_text()
        for key in ("Home",) + ("ArrowLeft",) * 21 + ("ArrowRight",):
            page.keyboard.press(key)
        live = page.locator("#live").inner_text().replace("\u00a0", " ")
        share = float(re.match(r"Review (\S+) %", live)[1]) / 100
        assert share == pytest.approx(0.15)
        rows = report.results.review
        for _, row in rows[rows["share"].sub(share).abs() < 1e-9].iterrows():
            assert f"{100 * row['detected']:.1f} % of {'the errors' if row['kind'] == 'id' else row['set']}" in live
        assert slider.get_attribute("aria-valuetext").replace("\u00a0", " ") == live
        assert page.locator("#cut").get_attribute("transform") == "translate(340 0)"
        page.keyboard.press("Home")
        assert "Review 0.0" in page.locator("#live").inner_text()
        assert watched.said == watched.asked == []


def test_a_click_on_a_title_sorts_the_samples(browser, folder):  # noqa: F811
    with Watched(browser, folder / "report.html") as watched:
        button = watched.page.get_by_role("button", name="confidence")
        cells = watched.page.locator(".sortable tbody tr td:nth-child(4)")
        for name, reverse in (("ascending", False), ("descending", True)):
            button.click()
            values = [float(text.split()[0]) for text in cells.all_inner_texts()]
            assert values == sorted(values, reverse=reverse)
            assert button.locator("..").get_attribute("aria-sort") == name


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["report", "bare", "two", "index"])
def test_axe_finds_nothing_and_nothing_is_wider_than_a_phone(browser, folder, name, dark):  # noqa: F811
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    with Watched(browser, folder / f"{name}.html", dark=dark, width=400) as watched:
        found = axe.Axe().run(watched.page).response["violations"]
        assert [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in found] == []
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= 400
        assert watched.said == watched.asked == []
