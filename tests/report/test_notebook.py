"""What notebooks show, in a real browser: every class on one page, in a light and in a dark theme."""

import struct

import pytest
import torch

from tests.browser import Watched, browser, contrast  # noqa: F401
from tests.report.cases import LEAK, Outline, make_results
from torch_boc import BoCMetric
from torch_boc.report import Comparison, Report

FRAME = (
    "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><title>Notebook</title><style>{}</style></head>"
    "<body><main><h1>Notebook</h1>{}</main></body></html>"
)
THEMES = {
    "light": "body { background: #ffffff; color: #111111; }",
    "dark": "body { background: #111111; color: #eeeeee; }",
}
COLOURS = """() => ['th', 'td', 'p', 'li', 'small'].flatMap((x) => [...document.querySelectorAll(`.boc-note ${x}`)])
  .map((x) => [getComputedStyle(x).color, getComputedStyle(document.body).backgroundColor])"""


def logits():
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(5, (900,), generator=generator)
    return torch.randn(900, 5, generator=generator) + 3 * torch.eye(5)[target], target


@pytest.fixture(scope="module")
def displays():
    rows, target = logits()
    fresh, metric = BoCMetric(), BoCMetric(prefix="val_")
    metric.update(rows, target)
    report = Report(make_results(("held out", LEAK), ("svhn", "far")))
    objects = {
        "fresh metric": fresh,
        "metric": metric,
        "report": report,
        "comparison": Comparison({"one <b>": report, "two": Report(make_results((), ("far",)))}),
    }
    return {name: x._repr_html_() for name, x in objects.items()}


def test_every_class_shows_itself(displays):
    outlines = {name: Outline(source) for name, source in displays.items()}
    figures = {name: len(outline.all("img")) for name, outline in outlines.items()}
    shown = {"metric", "report", "comparison"}
    assert figures == {name: int(name in shown) for name in displays}
    assert "no sample yet" in outlines["fresh metric"].text
    assert "val_gap" in outlines["metric"].text
    assert "one <b>" in outlines["comparison"].text


def test_the_numbers_are_those_of_the_objects(displays):
    rows, target = logits()
    metric = BoCMetric()
    metric.update(rows, target)
    assert f"{float(metric.compute()['accuracy']):.4f}" in displays["metric"]


def test_a_restored_metric_shows_its_samples():
    rows, target = logits()
    first, second, unsure = BoCMetric(num_classes=5), BoCMetric(num_classes=5), BoCMetric()
    for metric in (first, second, unsure):
        metric.persistent(True)
    first.update(rows, target)
    for metric in (second, unsure):
        metric.load_state_dict(first.state_dict())
    assert second._repr_html_() == first._repr_html_()
    assert "900 samples</span>" in unsure._repr_html_()  # a state does not tell the number of classes


def test_without_matplotlib_there_is_no_figure(monkeypatch):
    def missing(*args, **kwargs):
        raise ImportError("plots need matplotlib")

    monkeypatch.setattr("torch_boc.plots.require", missing)
    rows, target = logits()
    metric = BoCMetric()
    metric.update(rows, target)
    made = [metric, Report(make_results()), Comparison({"a": Report(make_results())})]
    for x in made:
        source = x._repr_html_()
        assert "<table" in source
        assert "<img" not in source


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", [1100, 420])
def test_in_a_browser(browser, displays, tmp_path, theme, width):  # noqa: F811
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    path = tmp_path / "notebook.html"
    path.write_text(FRAME.format(THEMES[theme], "<hr>".join(displays.values())), encoding="utf-8")
    with Watched(browser, path, width=width) as watched:
        page = watched.page
        assert [x["id"] for x in axe.Axe().run(page).response["violations"]] == []
        for ink, ground in page.evaluate(COLOURS):
            assert contrast(ink, ground) >= 4.5
        small = page.locator(".boc-note td small").first
        assert small.bounding_box()["y"] > small.locator("xpath=..").bounding_box()["y"]
        assert all(page.locator(".boc-note img").evaluate_all("x => x.map(y => y.complete && y.naturalWidth > 100)"))
        shot = page.screenshot(full_page=True)
        assert struct.unpack(">II", shot[16:24])[0] == width
        assert watched.said == []
