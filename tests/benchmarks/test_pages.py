"""The committed pages say what the code computes from the zoo, and the paper's numbers are the paper's."""

import re
from pathlib import Path

import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from benchmarks import decisions, scores
from benchmarks.language import resampling
from benchmarks.language.__main__ import HERE as LANGUAGE
from benchmarks.language.page import page as language_page
from benchmarks.paper.claims import CLAIMS, agreement
from benchmarks.paper.curves import convert, read_curves
from benchmarks.paper.experiments import FOLDER, available, compute, published
from benchmarks.paper.figures import training
from benchmarks.paper.page import page
from benchmarks.paper.tables import NOT_RUN, band_points, inside
from benchmarks.scores_page import page as scores_page
from torch_boc import zoo
from torch_boc.kernels import use

PAPER = Path(__file__).parents[3] / "shared" / "paper.tex"
LABELS = {"ViT": "vit", "ResNet": "resnet", "RoBERTa": "nlp"}
NUMBER = re.compile(r"[+−]?\d[\d,]*(?:\.\d+)?(?:e[−-]\d+)?")


def numbers_in(text):
    return [float(x.replace(",", "").replace("−", "-")) for x in NUMBER.findall(text)]


@pytest.mark.slow
def test_the_page_of_the_paper():
    """If this fails, run `python -m benchmarks.paper`. Numbers agree up to one in the last of four decimals."""
    papers = published()
    found = {name: compute(entry) for name, entry in available(papers).items()}
    curves = read_curves(names=[paper.entry for paper in papers])
    text = page([(paper, found.get(paper.entry)) for paper in papers], curves)
    committed = (FOLDER / "README.md").read_text(encoding="utf-8")
    for ours, theirs in zip(text.splitlines(), committed.splitlines(), strict=True):
        assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
        assert numbers_in(ours) == pytest.approx(numbers_in(theirs), abs=1.01e-4, rel=1e-6)
    assert all((FOLDER / link).exists() for link in re.findall(r"!\[[^]]+\]\(([^)]+)\)", text))
    agreed, asked = agreement([(paper, found.get(paper.entry)) for paper in papers])
    assert 0 < agreed < asked


def test_a_page_of_nothing_says_so(tmp_path):
    metrics = tmp_path / "metrics.csv"
    metrics.write_text("epoch,val/boc/gap,val/boc/forced_gap\n0,0.3,0.2\n0,,\n1,0.2,0.1\n")
    convert([metrics], tmp_path / "vit-cifar10.csv")
    curves = read_curves(tmp_path)
    assert [row["val/boc/gap"] for row in curves["vit-cifar10"]] == [0.3, 0.2]
    assert training(curves).axes
    assert NOT_RUN in page([(paper, None) for paper in published()], {})


@pytest.mark.skipif(not PAPER.exists(), reason="needs the paper's source")
@pytest.mark.parametrize("paper", published(), ids=lambda x: x.name)
def test_published_numbers_are_those_of_the_paper(paper):
    text = PAPER.read_text(encoding="utf-8")
    for key, kind in (("calibration", "calib"), ("ood", "ood")):
        table = text[text.index(f"\\label{{tab:{LABELS[paper.name]}_{kind}}}") :]
        rows = table[table.index("\\midrule") : table.index("\\bottomrule")].splitlines()[1:]
        expected = [[float(x) for x in row.rstrip("\\ ").split("&")[1:]] for row in rows if "&" in row]
        assert list(paper.content[key].values()) == expected


def test_the_paper_lies_in_its_band_and_bears_out_most_of_its_claims():
    assert all(inside(gap, *band) for _, _, gap, *band in band_points(published()))
    assert all(any(claim.holds(paper.numbers) for paper in published()) for claim in CLAIMS)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_page_of_decisions():
    """If this fails, run `python -m benchmarks.decisions`. The streams take minutes and are left out."""
    text, entry = decisions.PAGE.read_text(encoding="utf-8"), zoo.load("resnet20-cifar10")
    with use("torch"):
        rows = list(decisions.level_rows(entry))
    assert all(f"| {' | '.join(row)} |" in text for row in rows)


def test_the_page_of_scores():
    """If this fails, run `python -m benchmarks.scores`. All but the bootstrap, which takes longer."""
    committed = pd.read_csv(scores.TABLE)
    assert scores.PAGE.read_text(encoding="utf-8") == scores_page(committed)
    found = scores.table(["roberta-agnews"], replicates=2)
    mine = committed[committed["entry"] == "roberta-agnews"].reset_index(drop=True)
    names = ["score", "temperature", *(name for name in found if name == "auroc" or name.startswith("versus_"))]
    pd.testing.assert_frame_equal(found[names], mine[names], rtol=1e-5, atol=2e-6)


def test_the_page_on_language():
    table = pd.read_csv(LANGUAGE / "numbers.csv")
    assert (LANGUAGE / "README.md").read_text() == language_page(table, tinted=(LANGUAGE / "tinted.png").exists())


def test_statistics_of_resampled_documents():
    """A weighted AUROC is scikit-learn's, and ten equal tokens of a document say no more than one."""
    random = torch.Generator().manual_seed(0)
    positive = torch.rand(600, generator=random) < 0.4
    values = (torch.randn(600, generator=random) + positive).mul(4).round().double()  # with ties
    weight = torch.randint(0, 4, (600,), generator=random).double()
    expected = roc_auc_score(positive, values, sample_weight=weight)
    assert float(resampling.auroc(values, positive)(weight)) == pytest.approx(expected)
    few = values[:50]
    one = resampling.estimate(resampling.mean(few), torch.arange(50))
    ten = resampling.estimate(resampling.mean(few.repeat_interleave(10)), torch.arange(50).repeat_interleave(10))
    assert ten == pytest.approx(one)
