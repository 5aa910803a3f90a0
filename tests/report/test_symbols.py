"""Symbols are explained where they first appear, once; a figure of flat lines gives way to a sentence."""

import dataclasses
import re

import pytest

from tests.report.cases import LEAK, Outline, make_results
from torch_boc.report.coherence import flat_sentence
from torch_boc.report.document import page
from torch_boc.report.report import Report
from torch_boc.report.topics import Introductions, draw_figures


@pytest.fixture(scope="module")
def results():
    return make_results(("held out", LEAK))


def parts_of_page(results):
    """The text of each part and the symbols that it explains."""
    body = page(results, {}).partition("<main>")[2].partition("<section>\n<h2>How it was measured")[0]
    for part in body.split("<section")[1:]:
        text = Outline(f"<section{part}").text
        yield text.replace("\xa0", " "), re.findall(r"<dfn>(.*?)</dfn>", part)


def parts_of_markdown(results):
    text = Report(results).to_markdown().partition("## How it was measured")[0].replace("\\", "")
    for part in text.split("\n## ")[1:]:
        yield part, re.findall(r"^- \*\*(.*?)\*\*: ", part, re.MULTILINE)


@pytest.mark.parametrize("parts", [parts_of_page, parts_of_markdown])
def test_every_symbol_is_explained_once_in_the_part_where_it_first_appears(results, parts):
    told = []
    for text, explained in parts(results):
        told += explained
        assert {name for name, _ in Introductions().of([text])} <= set(told)
    assert len(told) == len(set(told))
    assert {"ECE", "MSP", "AUROC", "Δ", "R²", "q̄", "s_BoC", "p*"} <= set(next(parts(results))[1])


def test_words_that_contain_a_symbol_are_not_it():
    assert Introductions().of(["Tiles, kinds, freedom, the T-shirt and a MSPX"]) == []
    assert [name for name, _ in Introductions().of(["k = 20"])] == ["k"]
    assert "Δ" in dict(Introductions().of(["−Δ"]))


def test_a_meaning_introduces_its_own_symbols():
    names = [name for name, _ in Introductions().of(["R² 0.99"])]
    assert names == ["p̂", "q̄", "Δ", "forced", "free", "R²"]


def with_ends(results, *, ece=0.0766, auroc=0.109):
    """Lines that are flat but for their last point."""
    table = results.trials
    last = table["trials"] > 100
    values = {"ece": (0.0766, ece), "auroc": (0.109, auroc)}
    columns = {name: last.map({False: low, True: high}) for name, (low, high) in values.items()}
    return dataclasses.replace(results, trials=table.assign(**columns))


def test_flat_lines_are_a_sentence_and_no_figure(results):
    still = with_ends(results, ece=0.0768, auroc=0.1105)
    assert "trials" not in draw_figures(still)
    expected = (
        "Here the number of flips hardly matters: from k = 20 to 200, in both variants, the ECE of BoC stays within "
        "0.0766 and 0.0768 and the AUROC of s_BoC on “svhn” stays within 0.1090 and 0.1105."
    )
    assert flat_sentence(still) == expected
    assert expected in Outline(page(still, {})).text
    assert expected.replace("_", "\\_") in Report(still).to_markdown()
