"""The page: whole, escaped, small, without the gap; and one walk through it in a real browser."""

import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from tests.browser import Watched, browser  # noqa: F401
from tests.language.cases import make_record, make_trace
from torch_boc.language import Trace
from torch_boc.language.trace_page import SCALES

HOSTILE = ["</script><b>", "<img src=x onerror=alert(1)>", "' onload='x", '"', "{{ 7 + 7 }}", "\u2028", "\ud800"]
TOKEN = ".answer .text span"


class Parsed(HTMLParser):
    """The tags with the names of their attributes, and the JSON of a page."""

    def __init__(self, source):
        super().__init__()
        self.tags = []
        self.feed(source)
        found = re.search("id='data'>(.*?)</script>", source, re.DOTALL)
        self.data = json.loads(found[1]) if found else None

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, sorted(name for name, _ in attributes)))


def test_whatever_the_model_writes_stays_text():
    plain, hostile = make_trace(50, words=["a"]), make_trace(50, words=HOSTILE)
    one, other = Parsed(plain.html(title="c")), Parsed(hostile.html(title=HOSTILE[0]))
    assert one.tags == other.tags
    assert HOSTILE[0] in other.data["labels"]
    assert "{{ 7 + 7 }}" in hostile.html()
    assert Parsed(plain._repr_html_()).tags == Parsed(hostile._repr_html_()).tags == [("iframe", ["srcdoc", "style"])]


def test_a_prompt_without_numbers_is_one_text():
    bare = Trace([make_record(10, prompt=4, bare=True)], num_classes=50).html()
    assert bare.count("<span class='q") == 6 + 8  # the legend has 8


@pytest.mark.parametrize("name", SCALES)
def test_scales_are_ordered(name):
    edges = SCALES[name].edges
    assert [SCALES[name].level(edge) for edge in edges] == list(range(1, 8))
    assert SCALES[name].level(float("nan")) == -1


def test_a_walk_through_the_page(browser, tmp_path):  # noqa: F811
    trace = make_trace(120, 60, prompt=4)
    path = trace.save(tmp_path / "trace.html")
    with Watched(browser, path) as watched:
        page, tip = watched.page, watched.page.locator("#tip")
        shown = page.locator(".sequence").first.locator(".text").all_text_contents()
        assert "".join(shown) == trace.text(0)
        rows = [page.locator(x).first.bounding_box() for x in ("header", ".legend", "#help", ".strip")]
        assert all(a["y"] + a["height"] <= b["y"] for a, b in pairwise(rows))  # nothing lies over another thing
        _point(page, tip, trace)
        _press_keys(page, tip)
        _choose_a_quantity(page)
        strip = page.locator("svg").first
        strip.click(position={"x": strip.bounding_box()["width"] * 0.5 + 1, "y": 20})
        assert page.evaluate("document.activeElement.matches('.text span')")
        assert "token 61 of 120" in tip.inner_text()
        assert page.locator(".here").first.get_attribute("d") == "M60.5,0V100"
        looks = page.locator(".legend span").evaluate_all(
            "x => x.map(y => getComputedStyle(y)).map(s => s.borderBottomWidth + s.borderBottomStyle)"
        )
        assert len(set(looks)) == 8  # levels differ by more than colour
        assert watched.said == watched.asked == []
    with Watched(browser, path, script=False) as watched:
        shown = watched.page.locator(".sequence").first.locator(".text").all_text_contents()
        assert "".join(shown) == trace.text(0)


def _point(page, tip, trace):
    """Pointing at a token shows its numbers."""
    page.locator(".sequence").nth(1).locator(".text span").nth(20).hover()
    assert "token 21 of 60" in tip.inner_text()
    shown = dict(zip(*(page.locator(f"#tip {tag}").all_inner_texts() for tag in ("dt", "dd")), strict=True))
    assert list(shown) == ["lost coins", "confidence", "entropy", "rank", "log-probability"]
    numbers = trace[1].to_frame().iloc[20]
    for title, value in shown.items():
        assert float(value) == pytest.approx(numbers[re.sub("[ -]", "_", title)], rel=1e-3)
    assert tip.locator("li.emitted").count() == 1
    page.mouse.move(5, 5)  # so that no other token comes below it when the page scrolls
    tip.wait_for(state="hidden")


def _press_keys(page, tip):
    def focused():
        return page.evaluate("[...document.querySelectorAll('.text span')].indexOf(document.activeElement)")

    assert page.locator(".text span[tabindex='0']").count() == 2  # one for each sequence
    page.locator("#quantity").focus()
    page.keyboard.press("Tab")
    assert focused() == 0
    for key, place in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 119), ("Home", 0)):
        page.keyboard.press(key)
        assert focused() == place
        assert tip.is_visible()
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    page.keyboard.press("Tab")
    assert focused() >= 120


def _choose_a_quantity(page):
    """The select changes tint, strip and legend; the tint is that of Python."""

    def state():
        tints = page.locator(TOKEN).evaluate_all("x => x.map(y => y.className.replace(' now', ''))")
        drawn = [page.locator("svg").first.get_attribute("aria-label"), page.locator(".area").first.get_attribute("d")]
        return [tints, page.locator(".legend small").all_inner_texts(), *drawn]

    before = state()
    assert before[2].startswith("lost coins along the text: from ")
    assert before[3].count("V") == 120 + 1
    page.locator("#quantity").select_option("rank")
    after = state()
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert after[1][:2] == ["<2", "≥2"]
    source = make_trace(120, 60, prompt=4).html("rank")
    assert after[0][:5] == re.findall("<span class='(q[^']*)'", source.split("class='answer'")[1])[:5]
    page.locator("#quantity").select_option("lost_coins")
    assert state() == before


@pytest.mark.parametrize(("dark", "width"), [(False, 1100), (True, 360)])
def test_all_of_it_can_be_read(browser, tmp_path, dark, width):  # noqa: F811
    """By its contrast, and a long prompt without numbers by the keyboard."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    path = make_trace(1000, prompt=800, bare=True).save(tmp_path / "trace.html")
    with Watched(browser, path, width=width, dark=dark) as watched:
        watched.page.locator(TOKEN).nth(30).hover()
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
        watched.page.locator("#quantity").focus()
        watched.page.keyboard.press("Tab")
        text = watched.page.locator(".prompt .text")
        assert text.evaluate("x => x.scrollHeight > x.clientHeight && x === document.activeElement")
        found = axe.Axe().run(watched.page).response
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found["violations"]] == []
        assert "color-contrast" in {rule["id"] for rule in found["passes"]}
