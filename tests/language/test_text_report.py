"""What a report on texts shows: numbers, tables, sentences, a page and files."""

import copy
import json
import math
import pickle
import re

import pytest
import torch

from torch_boc.functional.next_tokens import BINS, SCALES, add_predictions, empty_text_tally
from torch_boc.language.text_numbers import TextPart
from torch_boc.language.text_report import TextReport
from torch_boc.language.text_verdict import sentences
from torch_boc.language.text_words import NAMES

CLASSES = 1000


def part(sharpness=1.0, rows=2000, seed=0, invalid=0):
    """Predictions of a model whose logits are `sharpness` times those that the tokens were drawn with."""
    random = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, CLASSES, generator=random)
    target = torch.multinomial(logits.softmax(-1), 1, generator=random).squeeze(1)
    logits[:invalid, 3] = torch.nan
    total = empty_text_tally()
    add_predictions(total, sharpness * logits, target)
    return TextPart(total, 4 * rows, 1)


@pytest.fixture(scope="module")
def report():
    settings = {"model": "Tiny", "num_classes": CLASSES, "context": 64, "stride": 32, "title": "<script>x"}
    return TextReport({"one <b>": part(), "two": part(1.5, seed=1)}, settings)


def test_numbers_are_attributes_and_entries(report):
    assert report.perplexity == report["perplexity"] == report.numbers["all"]["perplexity"]
    assert report.tokens == 4000
    with pytest.raises(AttributeError, match="TextReport has no attribute 'nonsense'"):
        _ = report.nonsense
    single = TextReport({"a": part()}, {"num_classes": CLASSES})
    assert list(single.numbers) == ["a"]
    assert single.numbers["a"] == single.whole


def test_no_text_has_the_name_of_all_together():
    with pytest.raises(ValueError, match="all: expected another name for a text among several"):
        TextReport({"all": part(), "b": part()}, {"num_classes": CLASSES})
    alone = TextReport({"all": part(rows=50)}, {"num_classes": CLASSES})
    assert alone.tokens == alone.numbers["all"]["tokens"] == 50


def test_a_report_has_at_least_one_text():
    with pytest.raises(ValueError, match="expected at least one text, got none"):
        TextReport({}, {"num_classes": CLASSES})


def test_tables(report):
    assert list(report.table.index) == ["one <b>", "two", "all"]
    bins = report.bins
    assert len(bins) == BINS
    assert bins["tokens"].sum() == 4000
    weights = bins["tokens"] / 4000
    for name in ("confidence", "accuracy", "gap", "forced_gap", "free_gap"):
        assert (weights * bins[name]).sum() == pytest.approx(report[name], rel=1e-6)
    some = bins[bins["tokens"] > 0]
    assert ((some["confidence"] > some["bin_low"]) & (some["confidence"] <= some["bin_high"])).all()
    ece = (weights * (bins["accuracy"] - bins["confidence"]).abs()).sum()
    assert ece == pytest.approx(report.ece)
    assert list(report.separation["score"]) == list(SCALES) == list(NAMES)
    assert report.separation["auroc"].between(0, 1).all()


def test_json_is_strict_and_complete(report, tmp_path):
    text = report.to_json(tmp_path / "a.json")
    assert (tmp_path / "a.json").read_text() == text
    content = json.loads(text, parse_constant=pytest.fail)
    assert content["settings"]["num_classes"] == CLASSES
    assert content["verdict"] == report.verdict
    assert content["numbers"]["two"]["perplexity"] == report.numbers["two"]["perplexity"]
    assert len(content["bins"]["accuracy"]) == BINS


def test_the_page_loads_nothing_and_escapes_names(report):
    page = report.html()
    assert "<script" not in page
    assert "&lt;script&gt;x" in page
    assert "one &lt;b&gt;" in page
    assert page.count("<img ") == page.count("data:image/") == 3
    assert not re.search(r"(src|href)=['\"]?https?:", page)
    assert all(re.search(r"alt='[^']+'", image) for image in re.findall(r"<img [^>]*>", page))
    text = re.sub(r"<[^>]+>", "", page).replace("&nbsp;", " ")
    assert all(sentence in text for sentence in report.verdict)
    places = [page.index(f"<h2>{title}") for title in ("The texts", "What tells right", "The coherence gap")]
    assert places == sorted(places)  # the gap comes last


def test_save_writes_whole_files(report, tmp_path):
    paths = report.save(tmp_path / "new")
    names = ["text.html", "text.json", "text.csv", "reliability.png", "lost_coins.png", "gap.png"]
    assert [path.name for path in paths] == names
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(names)
    assert paths[2].read_text().startswith("text,tokens,documents,bytes,perplexity")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="expected a folder"):
        report.save(tmp_path / "file")


def test_repr_copies_and_pickles(report):
    assert repr(report).startswith("TextReport: 4,000 tokens · perplexity ")
    assert all(sentence in repr(report) for sentence in report.verdict)
    for other in (copy.deepcopy(report), pickle.loads(pickle.dumps(report))):
        assert other.numbers == report.numbers


@pytest.mark.parametrize(
    ("sharpness", "said"),
    [
        (1.0, "is close to calibrated: the ECE is"),
        (1.6, "is not calibrated: the model is too sure, with a mean confidence of"),
        (0.6, "is not calibrated: the model is too unsure, with a mean confidence of"),
    ],
)
def test_the_verdict_on_calibration(sharpness, said):
    report = TextReport({"a": part(sharpness)}, {"num_classes": CLASSES})
    assert said in report.verdict[1]


def test_the_verdict_on_invalid_predictions():
    report = TextReport({"a": part(), "b": part(invalid=10)}, {"num_classes": CLASSES})
    assert report.verdict[0] == "10 of 4,000 predictions were NaN or +inf and are left out."
    assert report.verdict[1].startswith(f"The perplexity is {report.perplexity:.1f} per token. The next token was")
    assert math.isnan(report.bits_per_byte)
    assert math.isnan(report.numbers["b"]["bits_per_byte"])
    assert report.numbers["a"]["bits_per_byte"] > 0


def test_nothing_is_said_about_no_predictions():
    report = TextReport({"a": part(rows=30, invalid=30)}, {"num_classes": CLASSES})
    assert report.verdict == ["30 of 30 predictions were NaN or +inf and are left out."]
    assert report.verdict[0] in report.html()
    assert json.loads(report.to_json(), parse_constant=pytest.fail)["numbers"]["a"]["invalid"] == 30


def test_the_verdict_on_the_gap(report):
    numbers = report.whole
    assert report.verdict[-1].startswith(
        f"Confidence forces {100 * report.forced_share:.3f} % of the gap Δ: with 1,000"
    )
    few = sentences({**numbers, "forced_share": 0.5}, 4)
    assert few[-1] == "Confidence forces 50.0 % of the gap Δ; the rest is free."
    assert len(sentences({**numbers, "forced_share": float("nan")}, 2)) == len(few) - 1


def test_the_verdict_on_what_tells_more(report):
    numbers = {**report.whole, "auroc_energy": 0.99, "auroc_energy_at_equal_confidence": 0.8}
    said = sentences(numbers, CLASSES)[3]
    assert "told apart best by energy, with an AUROC of 0.990; confidence has" in said
    assert "At equal confidence there is more to see: " in said
    assert "energy 0.800" in said
    calm = {key: 0.5 if key.endswith("at_equal_confidence") else value for key, value in numbers.items()}
    assert sentences(calm, CLASSES)[3].endswith("At equal confidence, no other score tells more.")


def certain(right, rows=200, confident=5.0):
    """Predictions that are all right, or all wrong."""
    logits = torch.randn(rows, CLASSES, generator=torch.Generator().manual_seed(0))
    logits[:, 0] += confident
    total = empty_text_tally()
    add_predictions(total, logits, torch.full((rows,), int(not right)))
    return TextPart(total, 4 * rows, 1)


@pytest.mark.parametrize("right", [True, False])
def test_the_verdict_if_nothing_can_be_told_apart(right):
    report = TextReport({"a": certain(right, confident=20.0)}, {"num_classes": CLASSES})
    word = "right" if right else "wrong"
    assert report.accuracy == right
    assert report.verdict[3] == f"All predictions were {word}, so nothing tells them apart."


def test_the_verdict_without_pairs_of_equal_confidence():
    both = {"sure": certain(True, confident=20.0), "unsure": certain(False, confident=8.0)}
    report = TextReport(both, {"num_classes": CLASSES})
    assert report.auroc_confidence == 1
    assert report.verdict[3].endswith("No right prediction has about the confidence of a wrong one.")


@pytest.mark.parametrize(("rows", "judged"), [(2, False), (99, False), (150, False), (2000, True)])
def test_the_verdict_on_the_calibration_of_few_tokens(rows, judged):
    said = TextReport({"a": part(rows=rows)}, {"num_classes": CLASSES}).verdict[1]
    assert said.startswith("There are too few tokens to judge calibration: the ECE is") != judged
    far = TextReport({"a": part(3.0, rows=150)}, {"num_classes": CLASSES})
    assert "is not calibrated: the model is too sure" in far.verdict[1]  # more than chance explains


def test_figures_can_be_read(report):
    figures = report.figures()
    assert list(figures) == ["reliability", "lost_coins", "gap"]
    for figure in figures.values():
        (axis,) = figure.axes
        assert axis.get_xlabel()
        assert axis.get_ylabel()
