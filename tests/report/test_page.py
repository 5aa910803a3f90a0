"""The page: semantic, self-contained, legible in both schemes and on a phone."""

import base64
import re

import pandas as pd
import pytest
import torch

from tests.report.cases import LEAK, Outline, make_results
from torch_boc.pages import STYLE
from torch_boc.report import html as page_module
from torch_boc.report.measured import measured_how
from torch_boc.report.reliability import reliability_figure
from torch_boc.report.report import Report, image
from torch_boc.report.topics import captions, draw_figures, glossary


@pytest.fixture(scope="module")
def report():
    return Report(make_results(("held out", LEAK)))


@pytest.fixture(scope="module")
def source(report, tmp_path_factory):
    return report.to_html(tmp_path_factory.mktemp("page") / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def outline(source):
    return Outline(source)


def test_page_is_semantic_and_says_the_verdict_first(outline, report):
    assert outline.all("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in outline.all("meta")
    assert len(outline.all("main")) == len(outline.all("h1")) == len(outline.all("title")) == 1
    assert len(outline.all("section")) == len(outline.all("h2")) == 8
    assert len(outline.all("li")) == len(report.verdict)
    headings = re.findall(r"<h2>(.*?)</h2>", page_module.page(report.results, {}))
    assert headings == [
        "What this says",
        "Calibration",
        "Out-of-distribution detection",
        "A test that holds",
        "What the gap is made of",
        "Number of flips",
        "How it was measured",
        "Symbols",
    ]
    for words in (*report.verdict, "1,000 replicates", "torch_boc 0.5.0"):
        assert words in outline.text.replace("\xa0", " ")


def test_tables_have_captions_and_scopes(outline):
    tables = len(outline.all("table"))
    assert tables == 8
    assert [tags[-1] for tag, tags in outline.within if tag == "caption"] == ["table"] * tables
    assert {attributes.get("scope") for attributes in outline.all("th")} == {"row", "col"}
    regions = [attributes for attributes in outline.all("div") if attributes.get("class") == "scroll"]
    assert len(regions) == tables
    assert all(region["tabindex"] == "0" and region["aria-label"] for region in regions)


def test_images_have_captions_and_their_numbers_as_text(outline):
    images = outline.all("img")
    assert len(images) == len(outline.all("figcaption")) == 7
    for drawn, words in zip(
        images,
        (
            "MSP: ECE 0.0532",
            "MSP 0.891",
            "AUROC against svhn: MSP 0.891",
            "the alarm comes 31 samples later",
            "svhn, mean gap 0.1397",
            "test 0.0261",
            "0.0790",
        ),
        strict=True,
    ):
        assert words in drawn["alt"]
        assert drawn["src"].startswith("data:image/svg+xml;base64,")
        assert base64.b64decode(drawn["src"].split(",")[1]).lstrip().startswith(b"<?xml")


def test_page_asks_for_nothing(source, outline):
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in outline.tags}
    for _, attributes in outline.tags:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "srcset", "action"):
            assert attributes.get(name, "data:").startswith(("data:", "#"))
    text = re.sub(r"data:[^']*", "", source)
    assert "http" not in text
    assert "url(" not in text
    assert "@import" not in text


def test_style_has_rules_for_the_dark_and_for_phones(source):
    assert "@media (prefers-color-scheme: dark)" in source
    assert "@media (max-width:" in source
    assert "color-scheme: light dark" in source
    assert "tabular-nums" in source
    assert re.search(r"\.scroll \{[^}]*overflow-x: auto", source)
    assert re.search(r"\.card \{[^}]*background: #fff", source)


def test_contrast_of_the_colours():
    """At least 4.5 to 1 for text on each ground, in both schemes."""
    style = STYLE.read_text(encoding="utf-8")
    schemes = [dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in style.split("@media")[:2]]
    for colours in schemes:
        for ground in ("paper", "wash"):
            for ink in ("ink", "muted", "accent", "warn"):
                assert contrast(colours[ink], colours[ground]) > 4.5, (ink, ground)


def contrast(one, other):
    def luminance(colour):
        channels = torch.tensor([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = torch.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        return float(linear @ torch.tensor([0.2126, 0.7152, 0.0722])) + 0.05

    low, high = sorted((luminance(one), luminance(other)))
    return high / low


def test_best_values_and_marks(source):
    assert "<td class=best>0.0093<small>0.0053 to 0.0133</small></td>" in source
    assert "<td class=best>0.2921<small>0.2881 to 0.2961</small></td>" in source  # NLL: those of MSP do not count
    assert "<td>as MSP</td>" in source
    assert "s_BoC<span class='mark'>upside down</span><small>structural_score</small>" in source
    assert source.count("<span class='mark'>looks like training data</span>") == 4  # three methods, and the split
    assert "<td class=best>0.8908" in source
    assert "<td class=best>0.6712" in source  # FPR95, where the least is best


def test_page_stays_small_with_many_sets_and_long_curves(tmp_path):
    results = make_results(("held out", LEAK), tuple(f"set {i}" for i in range(8)))
    noise = torch.rand(len(results.roc), generator=torch.Generator().manual_seed(0)).numpy() / 50
    results.roc["tpr"] = (results.roc["tpr"] + noise).clip(0, 1)
    long = pd.concat([results.roc] * 5).sort_values(["ood", "score", "fpr"], kind="stable")
    path = Report(type(results)(**{**vars(results), "roc": long})).to_html(tmp_path / "report.html")
    assert path.stat().st_size < 1_500_000
    assert "data:image/png;base64," in path.read_text(encoding="utf-8")


def test_a_page_is_the_same_each_time(report, source):
    first = base64.b64decode(Outline(source).all("img")[0]["src"].split(",")[1])
    assert image(reliability_figure(report.results), "svg") == first


def test_the_text_of_the_score_histograms_names_what_they_show():
    results = make_results()
    titles = [axis.get_title().removeprefix("log ") for axis in draw_figures(results)["scores"].axes]
    assert re.findall(r"[:,] ([^:,]+?) 0\.\d{3}", captions(results, ["scores"])[0].alt) == titles


def test_the_page_says_how_every_interval_was_made_and_what_each_column_is():
    assert "AUROC vs MSP by DeLong’s method" in dict(measured_how(make_results()))["intervals"]
    assert "DeLong" not in dict(measured_how(make_results((), ())))["intervals"]
    meaning = dict(glossary())
    assert "1 − Var(free) / Var(Δ)" in meaning["R²"]
    assert "0.05" in meaning["rejected"]
