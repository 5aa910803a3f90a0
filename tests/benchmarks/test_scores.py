"""The committed table and page of the scores, and the rules that choose a temperature."""

import pandas as pd
import pytest
import torch

from benchmarks import scores as benchmark
from benchmarks.scores_page import conclusions, page
from tests.functional.cases import random_logits
from torch_boc import zoo
from torch_boc.functional import tempered_dominance

STALE = "out of date: run `python -m benchmarks.scores`"
KEYS = ["entry", "samples", "against", "score"]


@pytest.fixture(scope="module")
def committed():
    return pd.read_csv(benchmark.TABLE)


def test_committed_page_is_that_of_the_table(committed):
    assert benchmark.PAGE.read_text(encoding="utf-8") == page(committed), STALE


def test_committed_table_is_that_of_the_logits(committed):
    """All but the bootstrap, for which 1,000 replicates take longer."""
    assert committed["entry"].unique().tolist() == list(zoo.names()), STALE
    found = benchmark.table(zoo.names(), replicates=2)
    values = ["temperature", *(name for name in found if name == "auroc" or name.startswith("versus_"))]
    pd.testing.assert_frame_equal(found[KEYS], committed[KEYS])
    pd.testing.assert_frame_equal(found[values], committed[values], rtol=1e-5, atol=2e-6)
    assert (committed["auroc_low"] <= committed["auroc"]).all()
    assert (committed["auroc"] <= committed["auroc_high"]).all()


def test_the_command_writes_both(monkeypatch, tmp_path, committed, capsys):
    monkeypatch.setattr(benchmark, "TABLE", tmp_path / "scores.csv")
    monkeypatch.setattr(benchmark, "PAGE", tmp_path / "scores.md")
    monkeypatch.setattr(benchmark, "table", lambda names: committed)
    benchmark.main()
    assert (tmp_path / "scores.md").read_text(encoding="utf-8") == page(committed)
    assert capsys.readouterr().out == "wrote scores.csv\nwrote scores.md\n"


def test_rules_are_what_they_say():
    z = 4 * random_logits(401, 10)
    assert float(tempered_dominance(z, benchmark.by_median(z)).median()) == pytest.approx(0.9, abs=1e-5)
    gaps = z.amax(1) - (z.sum(1) - z.amax(1)) / 9
    assert benchmark.by_distance(z) == pytest.approx(float(gaps.median()) / 2)
    chosen = benchmark.by_spread(z)
    wide = float(tempered_dominance(z, chosen).std())
    assert all(float(tempered_dominance(z, t).std()) <= wide for t in (chosen / 2**0.125, chosen * 2**0.125))
    assert all(
        torch.tensor(rule(2 * z) / rule(z)).isclose(torch.tensor(2.0), rtol=0.1) for rule in benchmark.RULES.values()
    )


def test_conclusions_claim_what_the_intervals_show():
    differences = [(0.01, 0.03), (-0.03, -0.01), (-0.01, 0.01)]
    rows = []
    for against in ("a", "b", "c", "wrong"):
        row = {"entry": f"net {against}", "against": against, "score": "T: median", "temperature": 2.5}
        for base, (low, high) in zip(("msp", "energy", "gen"), differences, strict=True):
            row |= {f"versus_{base}": (low + high) / 2, f"versus_{base}_low": low, f"versus_{base}_high": high}
        low, high = (0.0, 0.1) if against == "a" else (0.05, 0.1)
        rows.append(row | {"versus_tempered_dominance_low": low, "versus_tempered_dominance_high": high})
    (said,) = conclusions(pd.DataFrame(rows))
    assert said == (
        "**q̄ by median** (T = 2.50), compared on OOD data with MSP: better on 3; energy: worse on 3; GEN: not shown to "
        "differ on 3; q̄ at T = 4: better on 2, not shown to differ on 1. On wrong predictions, compared with MSP: "
        "better on 1."
    )
