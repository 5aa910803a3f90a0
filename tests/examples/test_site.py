"""The tutorials run and end with a picture; the site is built without a warning, and a browser walks it."""

import importlib
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

import torch_boc
from tests.browser import Watched, browser  # noqa: F401
from tests.examples.conftest import EXAMPLES, SCRIPT

pytestmark = [pytest.mark.slow, SCRIPT]
SITE = EXAMPLES / "site"
TUTORIALS = sorted(path.stem for path in (EXAMPLES / "tutorials").glob("*.py"))
PARTS = ("functional", "nn", "metrics", "inference", "lightning", "transformers")
PARTS += ("ray", "calibration", "evaluation", "data", "language", "zoo")
LINKS = "elements => elements.map((x) => x.getAttribute('href'))"


@pytest.fixture(scope="module")
def run_cells():
    """The function that runs tutorials, in the module that the site uses, so that each of them runs once."""
    sys.path.insert(0, str(SITE))
    yield importlib.import_module("cells").run_cells
    sys.path.remove(str(SITE))


@pytest.fixture(scope="module")
def site(run_cells, tmp_path_factory):
    """The site, built as `make docs` does it."""
    pytest.importorskip("mkdocstrings", reason="no documentation: pip install 'torch-boc[docs]'")
    pytest.importorskip("material", reason="no documentation: pip install 'torch-boc[docs]'")
    config, build = (importlib.import_module(f"mkdocs.{name}") for name in ("config", "commands.build"))
    folder = tmp_path_factory.mktemp("site")
    settings = config.load_config(str(SITE / "mkdocs.yml"), site_dir=str(folder))
    assert settings.strict
    build.build(settings)  # ends with an error if there was a warning
    return folder


class Outline(HTMLParser):
    """The addresses that a page leads to, and the anchors that it has."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors.add(attributes.get("id"))
        self.links += [attributes[name] for name in ("href", "src") if attributes.get(name)]


def pages(site):
    """All pages but that of errors, which servers show at any address."""
    return [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]


def navigation(site):
    """The pages of the navigation, in its order, from the first one."""
    text = (site / "index.html").read_text(encoding="utf-8")
    found = re.findall(r'<a href="([^"#:]+\.html)" class="md-nav__link', text)
    return [site / name for name in dict.fromkeys(["index.html", *found])]


@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorials_run_and_end_with_a_picture(run_cells, name):
    cells = run_cells(EXAMPLES / "tutorials" / f"{name}.py")
    figure = cells[-1].shown
    assert type(figure).__name__ == "Figure"
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.has_data()
    assert cells[0].source.startswith("# ")
    assert all(cell.code or not cell.printed for cell in cells)


def test_links_lead_somewhere(site):
    """Pages, figures, files and anchors; nothing is loaded from elsewhere, and formulas are MathML."""
    outlines = {path.resolve(): Outline(path) for path in pages(site)}
    for path, outline in outlines.items():
        for link in outline.links:
            if re.match(r"(https?|mailto|data):", link):
                continue
            address, anchor = urldefrag(urljoin(path.as_uri(), link))
            target = Path(unquote(address.removeprefix("file://")))
            assert target.is_file(), f"{path.name}: {link}"
            if anchor and target in outlines:
                assert unquote(anchor) in {unquote(x) for x in outlines[target].anchors if x}, f"{path.name}: {link}"
    assert "<math" in (site / "mathematics.html").read_text(encoding="utf-8")


def test_all_pages_of_the_navigation_are_there(site):
    found = [path.relative_to(site).as_posix() for path in navigation(site)]
    assert len(found) == 28
    assert found[:7] == [
        f"{name}.html" for name in ("index", "loop", "models", "fleet", "decide", "report", "language")
    ]
    assert all((site / name).is_file() for name in found)


@pytest.mark.parametrize("part", PARTS)
def test_the_api_has_all_public_names(site, part):
    anchors = Outline(site / "api" / f"{part}.html").anchors
    for name in getattr(torch_boc, part).__all__:
        # A function in a module of its own name stands under the name of both.
        assert {f"torch_boc.{part}.{name}", f"torch_boc.{part}.{name}.{name}"} & anchors, name
    assert not any(re.search(r"\.(__\w+__|extra_repr)$", anchor or "") for anchor in anchors)
    text = (site / "api" / f"{part}.html").read_text(encoding="utf-8")
    assert "<blockquote" not in text, "examples of docstrings are code, and no quotations"


@pytest.mark.parametrize(("width", "dark"), [(1300, False), (360, True)])
def test_a_browser_walks_all_pages(browser, site, width, dark):  # noqa: F811
    """No word on the console, no request to the outside, no broken picture, and no page wider than the screen."""
    with Watched(browser, site / "index.html", width=width, dark=dark) as watched:
        for path in navigation(site):
            watched.page.goto(path.as_uri())
            broken = "x => x.filter((i) => !(i.complete && i.naturalWidth)).map((i) => i.src)"
            assert watched.page.locator("img").evaluate_all(broken) == [], path
            assert watched.page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert watched.said == []
        assert [url for url in watched.asked if not url.startswith((site.as_uri(), "data:", "about:"))] == []


def test_search_works_without_a_server(browser, site):  # noqa: F811
    with Watched(browser, site / "index.html", width=1300) as watched:
        watched.page.keyboard.press("/")
        watched.page.locator("input.md-search__input").press_sequentially("drift alarm")
        first = watched.page.locator(".md-search-result__item a").first
        first.wait_for()
        results = watched.page.locator(".md-search-result__item a").evaluate_all(LINKS)
        assert any("decide.html" in link for link in results)
        first.click()
        watched.page.wait_for_load_state()
        assert watched.page.url.startswith(site.as_uri())
        assert watched.said == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["index.html", "tutorials/review_queue.html"])
def test_pages_are_accessible(browser, site, name, dark):  # noqa: F811
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    with Watched(browser, site / name, width=1300, dark=dark) as watched:
        found = axe.Axe().run(watched.page).response["violations"]
        assert [(x["id"], [node["html"][:150] for node in x["nodes"][:3]]) for x in found] == []
