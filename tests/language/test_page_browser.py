"""The page in a real browser: nothing is loaded, tokens are reached by mouse and keys, and all of it can be read."""

import pytest

from tests.browser import Watched, browser, contrast  # noqa: F401
from tests.language.cases import make_trace

TOKEN = ".answer .text span"
# The colour of the text of every element, and the first ground behind it that is not transparent.
COLOURS = """(selector) => [...document.querySelectorAll(selector)].map((element) => {
  let ground = element;
  const clear = (x) => /, 0\\)$|transparent/.test(getComputedStyle(x).backgroundColor);
  while (clear(ground) && ground.parentElement) ground = ground.parentElement;
  return [getComputedStyle(element).color, getComputedStyle(ground).backgroundColor, element.className];
})"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return make_trace(120, 60, prompt=4).save(tmp_path_factory.mktemp("page") / "trace.html")


@pytest.fixture
def opened(browser, path):  # noqa: F811
    with Watched(browser, path) as watched:
        yield watched
        assert watched.said == []
        assert watched.asked == []


def test_nothing_is_said_and_nothing_is_loaded(opened):
    assert opened.page.locator(TOKEN).count() == 172
    assert opened.page.title() == "How sure the model was, token by token"
    assert opened.page.locator("select").is_visible()


def test_pointing_at_a_token_shows_its_numbers(opened):
    tip = opened.page.locator("#tip")
    assert not tip.is_visible()
    opened.page.locator(TOKEN).nth(7).hover()
    assert tip.is_visible()
    assert "token 12 of 120" in tip.inner_text()
    assert tip.locator("dt").all_inner_texts() == ["lost coins", "confidence", "entropy", "rank", "log-probability"]
    assert tip.locator("li.emitted").count() == 1
    assert tip.locator("li").count() >= 5
    opened.page.mouse.move(5, 5)
    tip.wait_for(state="hidden")


def test_the_numbers_are_those_of_the_trace(opened):
    numbers = make_trace(120, 60, prompt=4)[1].to_frame().iloc[20]
    opened.page.locator(".sequence").nth(1).locator(".text span").nth(20).hover()
    shown = dict(zip(*(opened.page.locator(f"#tip {tag}").all_inner_texts() for tag in ("dt", "dd")), strict=True))
    for title, name in (("lost coins", "lost_coins"), ("rank", "rank"), ("log-probability", "log_probability")):
        assert float(shown[title]) == pytest.approx(numbers[name], rel=1e-3)


def test_the_arrow_keys_move(opened):
    page = opened.page

    def focused():
        return page.evaluate("[...document.querySelectorAll('.text span')].indexOf(document.activeElement)")

    stops = page.locator(".text span[tabindex='0']").count()
    assert stops == 2  # one for each sequence
    page.locator("#quantity").focus()
    page.keyboard.press("Tab")
    assert focused() == 0
    for key, place in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 119), ("Home", 0)):
        page.keyboard.press(key)
        assert focused() == place
        assert page.locator("#tip").is_visible()
    page.keyboard.press("ArrowDown")
    below = focused()
    assert below > 3
    page.keyboard.press("ArrowUp")
    assert focused() < below
    page.keyboard.press("Escape")
    assert not page.locator("#tip").is_visible()
    assert page.locator(".text span[tabindex='0']").count() == stops
    page.keyboard.press("Tab")
    assert focused() >= 120


def test_the_select_changes_tint_strip_and_legend(opened):
    page = opened.page
    state = lambda: [  # noqa: E731
        page.locator(TOKEN).evaluate_all("x => x.map(y => y.className)"),
        page.locator(".area").first.get_attribute("d"),
        page.locator(".mean").first.get_attribute("d"),
        page.locator(".legend small").all_inner_texts(),
        page.locator("svg").first.get_attribute("aria-label"),
    ]
    before = state()
    page.locator("#quantity").select_option("rank")
    after = state()
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert after[3][:2] == ["<2", "≥2"]
    page.locator("#quantity").select_option("lost_coins")
    assert state() == before  # the script draws what the page came with


@pytest.mark.parametrize("name", ["confidence", "entropy", "rank", "log_probability", "gap"])
def test_the_script_draws_what_python_draws(browser, tmp_path, name):  # noqa: F811
    """A page of a quantity is the page of another one on which that quantity was chosen."""
    trace = make_trace(50, prompt=3)
    look = "() => ['.text span', 'path', 'svg', '.legend', '.axis'].map(x => [...document.querySelectorAll(x)])"
    look += ".map(list => list.map(x => x.className + x.getAttribute('d') + x.ariaLabel + x.textContent).join())"
    with Watched(browser, trace.save(tmp_path / "page.html", name)) as watched:
        drawn = watched.page.evaluate(look)
        watched.page.locator("#quantity").select_option("lost_coins")
        assert watched.page.evaluate(look) != drawn
        watched.page.locator("#quantity").select_option(name)
        assert watched.page.evaluate(look) == drawn


def test_the_strip_leads_to_the_tokens(opened):
    strip = opened.page.locator("svg").first
    box = strip.bounding_box()
    strip.click(position={"x": box["width"] * 0.5 + 1, "y": 20})
    assert opened.page.evaluate("document.activeElement.matches('.text span')")
    assert "token 61 of 120" in opened.page.locator("#tip").inner_text()
    assert opened.page.locator(".here").first.get_attribute("d") == "M60.5,0V100"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1100, 360])
def test_contrast_and_width(browser, path, dark, width):  # noqa: F811
    with Watched(browser, path, width=width, dark=dark) as watched:
        found = watched.page.evaluate(
            COLOURS, ".text span, .legend span, h3, .legend small, .axis span, figcaption, .help"
        )
        assert {f"q{level}" for level in range(8)} <= {kind.split()[0] for *_, kind in found if kind}
        for ink, ground, kind in found:
            assert contrast(ink, ground) >= 4.5, (kind, ink, ground)
        watched.page.locator(TOKEN).nth(30).hover()
        for ink, ground, _ in watched.page.evaluate(COLOURS, "#tip :not(i)"):
            assert contrast(ink, ground) >= 4.5
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= width


def test_levels_differ_by_more_than_colour(opened):
    looks = opened.page.locator(".legend span").evaluate_all(
        "x => x.map(y => getComputedStyle(y)).map(s => s.borderBottomWidth + s.borderBottomStyle)"
    )
    assert len(set(looks)) == 8


@pytest.mark.parametrize("script", [False, True])
def test_the_text_is_the_text(browser, path, script):  # noqa: F811
    """Also without scripts; and hostile tokens stay text."""
    with Watched(browser, path, script=script) as watched:
        trace = make_trace(120, 60, prompt=4)
        shown = watched.page.locator(".sequence").first.locator(".text").all_text_contents()
        assert "".join(shown) == trace.text(0)
        assert watched.page.locator(".text b, .text script").count() == 0
        assert watched.page.locator("#by").is_visible() != script
        assert watched.page.locator("#help").is_visible() == script


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("pointed", [False, True])
def test_axe_finds_nothing(browser, path, dark, pointed):  # noqa: F811
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="no axe: pip install axe-playwright-python"
    )
    with Watched(browser, path, dark=dark) as watched:
        if pointed:
            watched.page.locator("#quantity").focus()
            watched.page.keyboard.press("Tab")
        found = axe.Axe().run(watched.page).response["violations"]
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found] == []


def test_a_long_prompt_can_be_scrolled(browser, tmp_path):  # noqa: F811
    """Also with the keyboard, where none of its tokens has numbers; and axe agrees."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    path = make_trace(900, prompt=800, bare=True).save(tmp_path / "prompt.html")
    with Watched(browser, path) as watched:
        text = watched.page.locator(".prompt .text")
        assert text.evaluate("x => x.scrollHeight > x.clientHeight")
        watched.page.locator("#quantity").focus()
        watched.page.keyboard.press("Tab")
        assert text.evaluate("x => x === document.activeElement")
        assert axe.Axe().run(watched.page).response["violations"] == []
        watched.page.keyboard.press("Tab")
        assert "token 801 of 900" in watched.page.locator("#tip").inner_text()


@pytest.mark.parametrize("ground", ["#ffffff", "#111111"])
@pytest.mark.parametrize("dark", [False, True])
def test_in_a_notebook_of_any_theme(browser, tmp_path, ground, dark):  # noqa: F811
    """Whose colours need not be those of the system, and whose own elements stay as they are."""
    ink = "#111111" if ground == "#ffffff" else "#eeeeee"
    style = f"<style>body {{ background: {ground}; color: {ink} }}</style><p class='text'>own</p>"
    path = tmp_path / "notebook.html"
    path.write_text(f"<!DOCTYPE html><meta charset='utf-8'>{style}{make_trace(60)._repr_html_()}", encoding="utf-8")
    with Watched(browser, path, dark=dark) as watched:
        found = watched.page.evaluate(COLOURS, ".boc .text span, .boc .legend span, .boc p")
        assert len(found) > 60
        for colour, behind, kind in found:
            assert contrast(colour, behind) >= 4.5, (kind, colour, behind)
        assert watched.page.locator("p.text").evaluate("x => getComputedStyle(x).whiteSpace") == "normal"
        assert watched.said == watched.asked == []


def test_a_long_text_is_fast(browser, tmp_path):  # noqa: F811
    """2,000 tokens: switching the quantity takes a fraction of a second."""
    with Watched(browser, make_trace(2000).save(tmp_path / "long.html")) as watched:
        watched.page.locator("#quantity").select_option("rank")
        took = watched.page.evaluate(
            "() => { const t = performance.now(), s = document.getElementById('quantity'); s.value = 'entropy';"
            " s.dispatchEvent(new Event('change')); document.body.offsetHeight; return performance.now() - t; }"
        )
        assert took < 2000
