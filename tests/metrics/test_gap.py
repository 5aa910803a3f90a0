import pytest
import torch
from torchmetrics.wrappers import ClasswiseWrapper

from tests.dispatch import NoHostSync
from tests.metrics.cases import joined, labelled_batches
from tests.metrics.tester import assert_same, check_metric
from torch_boc import CoherenceGap
from torch_boc.functional import bag_of_coins, boc_summary, forced_gap

PARTS = {"total": "gap", "forced": "forced_gap", "free": "free_gap"}


@pytest.mark.parametrize("part", PARTS)
def test_is_the_mean_of_the_summary(part):
    batches = labelled_batches(40, 9, 17)
    check_metric(lambda: CoherenceGap(part=part), batches, boc_summary(*joined(batches))[PARTS[part]])


def test_parts_add_up():
    logits = joined(labelled_batches(50))[0]
    total, forced, free = (CoherenceGap(part=part)(logits) for part in PARTS)
    torch.testing.assert_close(forced + free, total, rtol=1e-12, atol=0)
    torch.testing.assert_close(forced, forced_gap(bag_of_coins(logits).odds, 7).mean(), rtol=1e-12, atol=0)


def test_by_predicted_class():
    batches = labelled_batches(60, 33)
    coins = bag_of_coins(joined(batches)[0])
    expected = torch.stack([coins.gap[coins.prediction == c].mean() for c in range(7)])
    check_metric(lambda: CoherenceGap(7, average="none"), batches, expected)


def test_a_class_never_predicted_is_nan():
    result = CoherenceGap(3, average="none")(torch.tensor([[2.0, 1.0, 0.0]]))
    assert result.isnan().tolist() == [False, True, True]


def test_classwise_wrapper():
    logits = joined(labelled_batches(60))[0]
    wrapped = ClasswiseWrapper(CoherenceGap(7, average="none"), prefix="gap/")
    result = wrapped(logits)
    assert list(result) == [f"gap/{c}" for c in range(7)]
    assert_same(torch.stack(list(result.values())), CoherenceGap(7, average="none")(logits))


def test_two_classes_have_no_gap():
    assert CoherenceGap()(torch.randn(20, 2)) == 0


def test_ignored_samples_do_not_count():
    logits, target = labelled_batches(30)[0]
    kept = target != 2
    assert_same(CoherenceGap(ignore_index=2)(logits, target), CoherenceGap()(logits[kept]))


def test_update_reads_nothing_back():
    metrics = CoherenceGap(validate_args=False), CoherenceGap(5, average="none", validate_args=False)
    with NoHostSync():
        for metric in metrics:
            metric.update(torch.randn(4, 5))
