import pytest
import torch

from tests.metrics.cases import joined, labelled_batches
from tests.metrics.tester import check_metric
from torch_boc import CoherenceGap
from torch_boc.functional import bag_of_coins, boc_summary

PARTS = {"total": "gap", "forced": "forced_gap", "free": "free_gap"}


@pytest.mark.parametrize("ignore_index", [None, 2])
@pytest.mark.parametrize("part", PARTS)
def test_is_the_mean_of_the_summary(part, ignore_index):
    batches = labelled_batches(40, 9, 17)
    expected = boc_summary(*joined(batches), ignore_index=ignore_index)[PARTS[part]]
    check_metric(lambda: CoherenceGap(part=part, ignore_index=ignore_index), batches, expected)


def test_by_predicted_class():
    """A class that is never predicted is NaN."""
    batches = labelled_batches(60, 33)
    batches = [(logits.index_fill(1, torch.tensor(6), -9.0), target) for logits, target in batches]
    coins = bag_of_coins(joined(batches)[0])
    expected = torch.stack([coins.gap[coins.prediction == c].mean() for c in range(7)])
    assert expected.isnan().tolist() == [False] * 6 + [True]
    check_metric(lambda: CoherenceGap(7, average="none"), batches, expected)
