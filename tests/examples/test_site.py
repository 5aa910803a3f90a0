"""The tutorials run and end with a picture; the site is built without a warning, and a browser walks it."""

import importlib
import json
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
PARTS = sorted(path.stem for path in (EXAMPLES / "guide" / "api").glob("*.md") if path.stem != "index")
LINKS = "elements => elements.map((x) => x.getAttribute('href'))"


@pytest.fixture(scope="module")
def modules():
    """Imports modules of the site, so that each tutorial runs once."""
    sys.path.insert(0, str(SITE))
    yield importlib.import_module
    sys.path.remove(str(SITE))


@pytest.fixture(scope="module")
def run_cells(modules):
    return modules("cells").run_cells


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
    names = re.findall(
        r'<a href="([^"#:]+\.html)" class="md-nav__link', (site / "index.html").read_text(encoding="utf-8")
    )
    return [site / name for name in dict.fromkeys(["index.html", *names])]


@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorials_run_and_end_with_a_picture(run_cells, name):
    cells = run_cells(EXAMPLES / "tutorials" / f"{name}.py")
    figure = cells[-1].shown
    assert type(figure).__name__ == "Figure"
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.has_data() for axes in figure.axes)
    assert cells[0].source.startswith("# ")
    assert all(cell.code or not cell.printed for cell in cells)


def test_tutorials_are_notebooks(site):
    for name in TUTORIALS:
        cells = json.loads((site / "tutorials" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        assert cells[0]["source"].startswith("# ")
        assert "image/png" in cells[-1]["outputs"][-1]["data"]


def test_doctest_output_with_indented_lines_stays_in_its_block(modules):
    """As the docstrings of modules print it."""
    text = "Text.\n\n>>> print(module)\nModule(\n  (0): Linear()\n)\n\nText."
    fence = "```pycon\n>>> print(module)\nModule(\n  (0): Linear()\n)\n```"
    assert modules("docstrings").fenced(text) == f"Text.\n\n{fence}\n\nText."


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
    names = [path.relative_to(site).as_posix() for path in navigation(site) if path.is_file()]
    assert names[:3] == ["index.html", "models.html", "tutorials/five_minutes.html"]
    assert {"decide.html", "api/Acceptance.html", "benchmarks/results/scores.html"} <= set(names)


@pytest.mark.parametrize("part", PARTS)
def test_the_api_has_all_public_names(site, modules, part):
    classes = modules("classes")
    pages = [site / "api" / f"{name}.html" for name in (part, *classes.CLASSES.get(part, ()))]
    anchors = set().union(*(Outline(page).anchors for page in pages))
    for name in getattr(torch_boc, part).__all__:
        # A function in a module of its own name stands under the name of both.
        assert {f"torch_boc.{part}.{name}", f"torch_boc.{part}.{name}.{name}"} & anchors, name
    assert not any(re.search(r"\.(__\w+__|extra_repr)$", anchor or "") for anchor in anchors)
    for page in pages:
        text = re.sub(r'<div class="[^"]*highlight">.*?</div>', "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert "<blockquote" not in text, "examples of docstrings are code, not quotations"
        assert "&gt;&gt;&gt;" not in re.sub(r"<pre.*?</pre>", "", text, flags=re.DOTALL), page


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
        violations = axe.Axe().run(watched.page).response["violations"]
        assert [(x["id"], [node["html"][:150] for node in x["nodes"][:3]]) for x in violations] == []
