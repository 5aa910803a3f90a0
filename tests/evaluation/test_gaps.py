"""The gap's parts against the summary, its mean by confidence, and the numbers of trials."""

import math

import numpy as np
import pytest
import torch

from tests import reference
from tests.data.cases import labelled, logit_sets, unfamiliar
from tests.evaluation.cases import rows_of
from torch_boc.evaluation import LogitSet
from torch_boc.evaluation.gaps import explained_share, gap_tables, trial_rows
from torch_boc.evaluation.inputs import probe_set
from torch_boc.functional import auroc, bag_of_coins, boc_summary, p_value, scores


@pytest.fixture(scope="module")
def sets():
    return [probe_set(data) for data in logit_sets(800, 7)]


def quiet(message):
    pass


def test_means_are_those_of_the_summary(sets):
    rows = rows_of("gaps", gap_tables(sets, 15)["gaps"])
    assert [(row.set, row.kind) for row in rows] == [("id", "id"), ("ood", "ood")]
    for row, data in zip(rows, sets, strict=True):
        summary = boc_summary(data.data.logits)
        for key in set(row._fields) & set(summary):  # up to the rounding of sums in float32
            assert getattr(row, key) == pytest.approx(summary[key].item(), rel=1e-7), key


def test_explained_share_of_what_does_not_vary():
    assert math.isnan(explained_share(torch.zeros(5), torch.arange(5.0)))
    assert math.isnan(explained_share(torch.ones(1), torch.ones(1)))
    assert math.isnan(explained_share(torch.full((7,), 0.1).double(), torch.arange(7.0)))
    assert explained_share(torch.arange(5.0), torch.arange(5.0) + 2) == 1


def test_coherence_averages_to_the_means(sets):
    rows, means = (rows_of(name, gap_tables(sets, 15)[name]) for name in ("coherence", "gaps"))
    assert len(rows) == 30
    for mean in means:
        filled = [row for row in rows if row.set == mean.set and row.samples]
        for key in ("confidence", "gap", "forced_gap"):
            total = sum(row.samples * getattr(row, key) for row in filled) / mean.samples
            assert total == pytest.approx(getattr(mean, key))
        for row in filled:
            assert row.bin_low < row.confidence <= row.bin_high
            assert row.forced_gap <= row.gap
    assert all(math.isnan(row.gap) for row in rows if not row.samples)


def test_deterministic_trials(sets):
    rows = rows_of("trials", trial_rows(sets, (20, 100), bins=15, seed=0, progress=quiet))[:2]
    coins = [bag_of_coins(x.data.logits.double()) for x in sets]
    error = reference.calibration_error(coins[0].dominance.numpy(), sets[0].correct.numpy())
    for row, trials in zip(rows, (20, 100), strict=True):
        assert (row.variant, row.trials, row.ood) == ("deterministic", trials, "ood")
        assert row.ece == pytest.approx(error)
        expected = auroc(*(-scores["log_p_value"](x.data.logits, trials=trials) for x in sets))
        assert row.auroc == pytest.approx(expected.item(), abs=1e-4)


def test_monte_carlo_trials_are_those_of_sampled_wins():
    """The paper's p-value of sampled wins, by its definition, has the AUROC that is reported, but for chance."""
    sets = [probe_set(LogitSet(*labelled(20_000), name="id")), probe_set(LogitSet(unfamiliar(20_000), name="ood"))]
    row = rows_of("trials", trial_rows(sets, (50,), bins=15, seed=0, progress=quiet))[1]
    numbers = np.random.default_rng(0)
    drawn = [torch.from_numpy(numbers.binomial(50, x.coins.dominance.numpy())).double() for x in sets]
    values = [1 - p_value(x.coins, 50, wins=wins) for x, wins in zip(sets, drawn, strict=True)]
    assert row.auroc == pytest.approx(auroc(*values).item(), abs=0.012)
    error = reference.calibration_error(drawn[0].numpy() / 50, sets[0].correct.numpy())
    assert row.ece == pytest.approx(error, abs=0.005)
