import pytest
import torch

from tests.metrics.cases import joined, labelled_batches
from tests.metrics.tester import assert_same, check_metric
from torch_boc import CoherenceGap
from torch_boc.functional import bag_of_coins, boc_summary

PARTS = {"total": "gap", "forced": "forced_gap", "free": "free_gap"}


@pytest.mark.parametrize("part", PARTS)
def test_is_the_mean_of_the_summary(part):
    batches = labelled_batches(40, 9, 17)
    check_metric(lambda: CoherenceGap(part=part), batches, boc_summary(*joined(batches))[PARTS[part]])


def test_by_predicted_class():
    batches = labelled_batches(60, 33)
    coins = bag_of_coins(joined(batches)[0])
    expected = torch.stack([coins.gap[coins.prediction == c].mean() for c in range(7)])
    check_metric(lambda: CoherenceGap(7, average="none"), batches, expected)


def test_a_class_never_predicted_is_nan():
    result = CoherenceGap(3, average="none")(torch.tensor([[2.0, 1.0, 0.0]]))
    assert result.isnan().tolist() == [False, True, True]


def test_ignored_samples_do_not_count():
    logits, target = labelled_batches(30)[0]
    kept = target != 2
    assert_same(CoherenceGap(ignore_index=2)(logits, target), CoherenceGap()(logits[kept]))
