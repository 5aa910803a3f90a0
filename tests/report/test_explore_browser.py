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


def test_a_button_leads_to_a_share_of_false_alarms(opened, report):
    page = opened.page
    page.locator("#score").select_option("energy")
    page.get_by_role("button", name="1 %", exact=True).focus()
    page.keyboard.press("Enter")
    assert flagged(page)["id"] == pytest.approx(1.0, abs=0.06)
    page.get_by_role("button", name="10 %").click()
    assert flagged(page)["id"] == pytest.approx(10.0, abs=0.06)
    live = page.locator("#live").inner_text()
    threshold = float(re.match(r"energy below (\S+):", live)[1])
    assert flagged(page)["far"] == pytest.approx(below(report, "energy", "far", threshold), abs=0.06)


def test_another_score_keeps_the_share_of_false_alarms_and_moves_the_line(opened):
    page = opened.page
    path = "#bins .shapelayer path"
    before = page.locator(path).get_attribute("d")
    page.locator("#score").select_option("gap")
    assert flagged(page)["id"] == pytest.approx(5.0, abs=0.06)
    assert page.locator("#live").inner_text().startswith("−Δ below −0.")
    assert page.locator(path).get_attribute("d") != before
    assert "Histograms of −Δ for id, far" in page.locator("#bins").get_attribute("aria-label")


def hover(page, id, across, down):
    page.locator(f"#{id}").scroll_into_view_if_needed()
    box = page.locator(f"#{id} .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"], steps=3)
    text = page.locator(f"#{id} .hovertext").first
    text.wait_for()
    return text.text_content()


def test_pointing_at_a_curve_shows_its_values(opened):
    text = hover(opened.page, "roc", 0.5, 0.1)
    assert re.search(r"\(0\.\d{3}\).*false positive \d+\.\d\d%, true positive \d+\.\d\d%", text)


def test_pointing_at_a_bin_of_confidence_shows_accuracy_and_samples(opened, report):
    rows = report.results.reliability.query("method == 'MSP' and samples >= 10")
    row = rows.iloc[-1]
    text = hover(opened.page, "reliability", row["confidence"] / 1.02, 1 - row["accuracy"] / 1.02)
    assert f"confidence {row['confidence']:.3f}" in text
    assert f"accuracy {row['accuracy']:.3f} (" in text


def test_pointing_at_a_sample_shows_its_row(opened, report):
    text = hover(opened.page, "coherence", 0.6, 0.5)
    name, row, confidence = re.match(r"(.+), row (\d+): p̂ (0\.\d+)", text).groups()
    table = report.results.samples
    (found,) = table[(table["set"] == name) & (table["row"] == int(row))]["confidence"]
    assert found == pytest.approx(float(confidence), abs=1e-4)


def test_the_gap_of_two_classes_is_flat(browser, folder):  # noqa: F811
    with Watched(browser, folder / "two.html") as watched:
        watched.page.locator("#coherence .main-svg").first.wait_for()
        low, high = watched.page.evaluate("document.getElementById('coherence')._fullLayout.yaxis.range")
        assert -0.001 <= low <= 0
        assert 0.01 <= high <= 0.02
        assert watched.said == []


def test_the_other_ood_set_has_other_curves(opened):
    page = opened.page
    before = page.locator("#roc .scatterlayer .js-line").nth(1).get_attribute("d")
    page.locator("#ood").select_option(ODD)
    assert page.locator("#roc .scatterlayer .js-line").nth(1).get_attribute("d") != before


def column(page, number):
    return page.locator(f"#list tbody tr > :nth-child({number})").all_inner_texts()


def numbers(texts):
    return [float(text.replace("−", "-").replace(",", "")) for text in texts]


def test_the_list_is_sorted_by_buttons_and_keys(opened):
    page = opened.page
    head = page.locator("#list th:has(button)")
    assert numbers(column(page, 8)) == sorted(numbers(column(page, 8)))
    assert numbers(column(page, 9)) == sorted(numbers(column(page, 9)))  # p-values rank alike
    assert head.nth(7).get_attribute("aria-sort") == "ascending"
    page.get_by_role("button", name="Δ").focus()
    page.keyboard.press("Enter")
    assert numbers(column(page, 6)) == sorted(numbers(column(page, 6)))
    page.keyboard.press("Space")
    assert numbers(column(page, 6)) == sorted(numbers(column(page, 6)), reverse=True)
    assert head.nth(5).get_attribute("aria-sort") == "descending"
    assert page.locator("#list [aria-sort]").count() == 1
    assert "by Δ, highest first" in page.locator("#listed").inner_text()


def test_samples_without_a_p_value_are_listed_among_the_others(browser, folder):  # noqa: F811
    """Without a calibration split, half of the test samples calibrate the conformal test."""
    with Watched(browser, folder / "two.html") as watched:
        odds, chances = (column(watched.page, place) for place in (8, 9))
        assert numbers(odds) == sorted(numbers(odds))
        assert "–" in chances[: len(chances) // 2]
        assert chances[-1] != "–"


def test_the_list_of_one_set_and_more_of_it(opened, report):
    page, table = opened.page, report.results.samples
    assert len(column(page, 1)) == 50
    page.locator("#among").select_option("far")
    assert set(column(page, 1)) == {"far"}
    page.locator("#more").click()
    assert len(column(page, 1)) == 100
    assert page.locator("#more").is_hidden()
    expected = table[(table["set"] == "far") & table["suspicious"]]["row"]
    assert sorted(numbers(column(page, 2))) == sorted(expected.tolist())
    page.locator("#among").select_option(ODD)
    assert set(column(page, 4)) == {"–"}  # without targets
    assert page.locator("#list b").count() == 0


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1100, 360])
def test_schemes_and_widths(browser, folder, dark, width):  # noqa: F811
    with Watched(browser, folder / "explore.html", width=width, dark=dark) as watched:
        watched.page.locator("#coherence .main-svg").first.wait_for()
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
        paper = watched.page.evaluate("getComputedStyle(document.body).backgroundColor")
        ground = watched.page.locator("#roc .main-svg").first.evaluate("x => getComputedStyle(x).backgroundColor")
        assert ground == paper
        for text in watched.page.locator("#roc .xtick text").all():
            assert text.bounding_box()["x"] >= 0


def test_the_figures_follow_a_change_of_the_scheme(opened):
    ground = "x => getComputedStyle(x).backgroundColor"
    before = opened.page.locator("#roc .main-svg").first.evaluate(ground)
    opened.page.emulate_media(color_scheme="dark")
    opened.page.wait_for_function(
        "before => getComputedStyle(document.querySelector('#roc .main-svg')).backgroundColor !== before", arg=before
    )


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


def test_without_scripts_the_page_says_where_the_numbers_are(browser, folder):  # noqa: F811
    with Watched(browser, folder / "explore.html", script=False) as watched:
        assert "does not run" in watched.page.locator("noscript").inner_text()
