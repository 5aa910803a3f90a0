"""The committed pages say what the code computes from the zoo."""

import re

import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from benchmarks import scores
from benchmarks.language import resampling
from benchmarks.paper.claims import CLAIMS
from benchmarks.paper.curves import read_curves
from benchmarks.paper.experiments import FOLDER, available, compute, published
from benchmarks.paper.page import page
from benchmarks.paper.tables import band_points, inside

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


def test_the_paper_lies_in_its_band_and_bears_out_most_of_its_claims():
    assert all(inside(gap, *band) for _, _, gap, *band in band_points(published()))
    assert all(any(claim.holds(paper.numbers) for paper in published()) for claim in CLAIMS)


def test_the_page_of_scores():
    """If this fails, run `python -m benchmarks.scores`. All but the bootstrap, which takes longer."""
    committed = pd.read_csv(scores.TABLE)
    found = scores.table(["roberta-agnews"], replicates=2)
    mine = committed[committed["entry"] == "roberta-agnews"].reset_index(drop=True)
    names = ["score", "temperature", *(name for name in found if name == "auroc" or name.startswith("versus_"))]
    pd.testing.assert_frame_equal(found[names], mine[names], rtol=1e-5, atol=2e-6)


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
