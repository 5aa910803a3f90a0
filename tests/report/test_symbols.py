"""Symbols are explained where they first appear, once; a figure of flat lines gives way to a sentence."""

import dataclasses
import re
from io import StringIO

import pytest
from rich.console import Console

from tests.report.cases import LEAK, Outline, make_results
from torch_boc.cli import render
from torch_boc.evaluation import Comparison
from torch_boc.report.coherence import flat_sentence
from torch_boc.report.document import page
from torch_boc.report.report import Report
from torch_boc.report.topics import Introductions, draw_figures, glossary


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


def test_in_the_terminal_as_well(results):
    console = Console(width=80, file=StringIO())
    render.show_report(Report(results), console)
    text = " ".join(console.file.getvalue().split())
    first, rest = text.split("Out of distribution", 1)
    meaning = dict(glossary())
    for name in ("ECE", "NLL", "Brier", "T", "MSP", "BoC"):
        assert f"{name} {meaning[name]}" in first
    for name in ("AUROC", "FPR95", "AUPR", "Δ", "ρ", "p*", "s_BoC", "R²"):
        assert rest.count(f"{name} {meaning[name]}") == 1
    assert max(map(len, console.file.getvalue().splitlines())) <= 80 + 2  # combining marks have no width


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


@pytest.mark.parametrize("values", [{"ece": 0.0766 * 1.04}, {"auroc": 0.135}])
def test_one_line_that_is_not_flat_keeps_the_figure(results, values):
    moving = with_ends(results, **values)
    assert "trials" in draw_figures(moving)
    assert flat_sentence(moving) == ""
    assert "hardly matters" not in page(moving, {})


def test_flips_without_targets_or_other_sets():
    assert flat_sentence(make_results((), (), targets=False)) == ""
    results = make_results((), ())
    alone = dataclasses.replace(results, trials=results.trials.assign(ece=0.0766))
    assert flat_sentence(alone).endswith("in both variants, the ECE of BoC is 0.0766.")


def test_side_by_side_as_well(results):
    comparison = Comparison({"one": Report(results), "two": Report(results)})
    source = comparison._page({"one": {}, "two": {}}).partition("<h2>Symbols")[0]
    told = re.findall(r"<dfn>(.*?)</dfn>", source)
    assert len(told) == len(set(told))
    assert {
        name for name, _ in Introductions().of([Outline(source.partition("<main>")[2].rpartition("<section>")[0]).text])
    } <= set(told)
    assert source.index("<dfn>R²</dfn>") < source.index("two/report.html")
    console = Console(width=80, file=StringIO())
    comparison.reports["one"].results.settings["title"] = ""
    render.show_comparison(comparison, console)
    assert " ".join(console.file.getvalue().split()).count(f"R² {dict(glossary())['R²']}") == 1
