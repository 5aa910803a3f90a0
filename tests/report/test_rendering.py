"""Templates escape whatever they are given, in text and in attributes."""

import pytest

from tests.report.cases import LEAK, Outline, make_results
from torch_boc.report.comparison import Comparison
from torch_boc.report.document import TEMPLATES, Picture, markdown, page, template
from torch_boc.report.report import Report

QUOTES = "' onload='x\" {{ 7 + 7 }} <i>"


def tags_and_attributes(source):
    return [(tag, sorted(attributes)) for tag, attributes in Outline(source).tags]


def test_a_name_cannot_leave_its_attribute():
    picture = {name: Picture(b"x", False) for name in ("roc", "gaps")}
    names = [{"splits": (LEAK,), "ood": (name,)} for name in ("svhn", QUOTES)]
    plain, hostile = (page(make_results(**sets), picture, up=sets["ood"][0]) for sets in names)
    assert tags_and_attributes(hostile) == tags_and_attributes(plain)
    labels = [attributes["aria-label"] for attributes in Outline(hostile).all("div") if "aria-label" in attributes]
    assert any(QUOTES in label for label in labels)
    assert any(QUOTES in attributes["alt"] for attributes in Outline(hostile).all("img"))
    assert Outline(hostile).all("a") == [{"href": QUOTES}]


def test_no_template_is_run_twice():
    assert "{{ 7 + 7 }}" in markdown(make_results((), (QUOTES,)))
    assert "{{ 7 + 7 }}" in page(make_results((), (QUOTES,)), {})


def test_names_of_models_side_by_side(tmp_path, monkeypatch):
    monkeypatch.setattr(Report, "figures", lambda self: {})
    monkeypatch.setattr("torch_boc.report.report.has", lambda package: False)  # no page to explore
    report = Report(make_results())
    plain, hostile = Comparison({"one": report}), Comparison({QUOTES: report})
    sources = [x.save(tmp_path / str(i))[0].read_text(encoding="utf-8") for i, x in enumerate((plain, hostile))]
    assert tags_and_attributes(sources[0]) == tags_and_attributes(sources[1])


@pytest.mark.parametrize("file", sorted(path.name for path in TEMPLATES.glob("*.jinja")))
def test_no_template_switches_escaping_off(file):
    template(file)
    text = (TEMPLATES / file).read_text(encoding="utf-8")
    assert "safe" not in text
    assert "autoescape" not in text
