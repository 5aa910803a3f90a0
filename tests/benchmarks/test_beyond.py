"""What is beyond confidence: known answers by construction, direct sums, and DeLong's method as a special case."""

import pytest
import torch

from benchmarks.paper.beyond import beyond_confidence, confidence_strata, separate_within
from torch_boc.evaluation.separation import paired_difference, rank_scores, separate


def made(samples, evenness, *, doubt=-1.0, classes=6, seed=0):
    """Logits whose odds are logistic normal around `doubt`, and whose rivals share them evenly or not."""
    generator = torch.Generator().manual_seed(seed)
    odds = torch.sigmoid(doubt + torch.randn(samples, 1, generator=generator, dtype=torch.float64))
    alpha = torch.full((samples, classes - 1), evenness, dtype=torch.float64)
    shares = torch._standard_gamma(alpha, generator=generator).clamp_min(1e-12)
    return torch.cat([torch.zeros(samples, 1, dtype=torch.float64), (odds * shares / shares.sum(1, True)).log()], 1)


def test_what_rivals_tell_is_found_and_nothing_where_there_is_nothing():
    telling = beyond_confidence(made(1000, 5.0, seed=1), made(1000, 0.5, seed=2), replicates=50)
    silent = beyond_confidence(made(1000, 5.0, doubt=-2.0, seed=3), made(1000, 5.0, doubt=-0.5, seed=4), replicates=50)
    telling, silent = (x.set_index(["how", "what"]) for x in (telling, silent))
    assert telling.loc[("strata", "concentration"), "auroc_low"] > 0.7
    assert telling.loc[("model", "concentration"), "versus_confidence_low"] > 0.1
    assert silent.loc[("strata", "concentration"), "auroc"] == pytest.approx(0.5, abs=0.04)
    assert -0.02 < silent.loc[("model", "concentration"), "versus_confidence"] < 0.001


@pytest.mark.parametrize("strata", [1, 4, 25])
def test_strata_are_direct_sums(strata):
    generator = torch.Generator().manual_seed(0)
    known, strange = (torch.randn(n, generator=generator).round(decimals=1) for n in (90, 70))
    places = confidence_strata((known + 0.3, strange), strata)
    wins = (known[:, None] > strange).double() + 0.5 * (known[:, None] == strange)
    pairs = places[0][:, None] == places[1]
    assert separate_within((known, strange), places).auroc == pytest.approx(float(wins[pairs].mean()), abs=1e-12)


def test_one_stratum_is_delong():
    generator = torch.Generator().manual_seed(0)
    known, strange = torch.randn(2, 80, generator=generator) + 1, torch.randn(2, 60, generator=generator)
    places = torch.zeros(80, dtype=torch.long), torch.zeros(60, dtype=torch.long)
    ours = [separate_within(pair, places) for pair in zip(known, strange, strict=True)]
    theirs = [separate(rank_scores(x), rank_scores(y)) for x, y in zip(known, strange, strict=True)]
    assert paired_difference(*ours) == pytest.approx(paired_difference(*theirs), abs=1e-12)
