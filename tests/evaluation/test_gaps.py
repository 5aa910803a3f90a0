"""The gap's parts against the summary, its mean by confidence, and the numbers of trials."""

import math

import pytest
import torch

from tests.data.cases import logit_sets
from tests.evaluation.cases import rows_of
from torch_boc.evaluation.gaps import explained_share, gap_tables
from torch_boc.evaluation.inputs import probe_set
from torch_boc.functional import boc_summary


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
