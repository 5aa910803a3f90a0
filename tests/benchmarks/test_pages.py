"""The committed pages say what the code computes from the zoo."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from benchmarks import scores
from benchmarks.known_truth import made_logits
from benchmarks.language import resampling
from benchmarks.paper.beyond import columns_of, difference_at_equal_confidence, gain
from benchmarks.paper.page import make
from benchmarks.paper.tables import FOLDER, PUBLISHED
from torch_boc.functional import dominance_bounds

NUMBER = re.compile(r"[+−]?\d[\d,]*(?:\.\d+)?(?:e[−-]\d+)?")


def numbers_in(text):
    return [float(x.replace(",", "").replace("−", "-")) for x in NUMBER.findall(text)]


@pytest.mark.slow
def test_the_page_of_the_paper():
    """If this fails, run `python -m benchmarks.paper`. Numbers agree up to one in the last of four decimals."""
    committed = (FOLDER / "README.md").read_text(encoding="utf-8")
    for ours, theirs in zip(make()[0].splitlines(), committed.splitlines(), strict=True):
        assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
        assert numbers_in(ours) == pytest.approx(numbers_in(theirs), abs=1.01e-4, rel=1e-6)


@pytest.mark.parametrize("paper", PUBLISHED.values(), ids=PUBLISHED)
def test_the_paper_s_points_lie_in_the_band(paper):
    """As the page says. The paper gives them to two decimals, at confidences from `low` to `high`."""
    for low, high, gap in paper["curve"]:
        confidence = torch.tensor([high, low], dtype=torch.float64)
        least, most = dominance_bounds((1 - confidence) / confidence, len(paper["protocol"]["classes"]))
        assert round(float(least[0] - high), 2) <= gap <= round(float(most[1] - low), 2)


def test_the_gain_of_rivals_is_measured_and_zero_where_only_confidence_differs():
    """Rivals that are more even among OOD samples, and samples that differ only in confidence."""
    numbers = np.random.default_rng(0)
    id_columns, even, unsure = (
        columns_of(made_logits(2000, numbers, **options))
        for options in ({"evenness": 0.5}, {"evenness": 5.0}, {"evenness": 0.5, "doubt": 0.5})
    )
    assert gain(id_columns, even, ["p̂"], ["ρ"]).gain_low > 0.1
    assert -0.02 < gain(id_columns, unsure, ["p̂"], ["ρ"]).gain < 0.002
    assert difference_at_equal_confidence(even, id_columns, "ρ") < -0.2
    assert abs(difference_at_equal_confidence(unsure, id_columns, "ρ")) < 0.02
    assert (
        abs(difference_at_equal_confidence(unsure, id_columns, "Δ"))
        < 0.005
        < float((unsure["Δ"] - id_columns["Δ"]).mean())
    )


def test_the_page_of_scores():
    """If this fails, run `python -m benchmarks.scores`. All but the bootstrap, which takes longer."""
    committed = pd.read_csv(scores.TABLE)
    computed = scores.table(["roberta-agnews"], replicates=2)
    mine = committed[committed["entry"] == "roberta-agnews"].reset_index(drop=True)
    names = ["score", "temperature", *(name for name in computed if name == "auroc" or name.startswith("versus_"))]
    pd.testing.assert_frame_equal(computed[names], mine[names], rtol=1e-5, atol=2e-6)


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
