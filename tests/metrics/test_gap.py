import pytest
import torch

from tests.metrics.cases import joined, labelled_batches
from tests.metrics.tester import assert_same, check_metric
from torch_boc import CoherenceGap
from torch_boc.functional import bag_of_coins, boc_summary, coherence_gap

PARTS = {"total": "gap", "forced": "forced_gap", "free": "free_gap"}


@pytest.mark.parametrize("ignore_index", [None, 2])
@pytest.mark.parametrize("part", PARTS)
def test_is_the_mean_of_the_summary(part, ignore_index):
    batches = labelled_batches(40, 9, 17)
    expected = boc_summary(*joined(batches), ignore_index=ignore_index)[PARTS[part]]
    check_metric(lambda: CoherenceGap(part=part, ignore_index=ignore_index), batches, expected.float(), atol=1e-7)
    assert_same(coherence_gap(*joined(batches), part=part, ignore_index=ignore_index), expected)


def test_by_predicted_class():
    """A class that is never predicted is NaN."""
    batches = labelled_batches(60, 33)
    batches = [(logits.index_fill(1, torch.tensor(6), -9.0), target) for logits, target in batches]
    coins = bag_of_coins(joined(batches)[0])
    expected = torch.stack([coins.gap[coins.prediction == c].mean() for c in range(7)])
    assert expected.isnan().tolist() == [False] * 6 + [True]
    assert_same(coherence_gap(*joined(batches), average=None), expected, atol=1e-7)
    for average in (None, "none"):
        check_metric(lambda average=average: CoherenceGap(7, average=average), batches, expected.float(), atol=1e-7)


def test_the_function_is_differentiable_and_leaves_bad_rows_out():
    logits = joined(labelled_batches(12))[0].double().requires_grad_()
    assert torch.autograd.gradcheck(coherence_gap, logits)
    bad = logits.detach().index_fill(0, torch.tensor([3]), torch.nan)
    good = torch.cat([logits[:3], logits[4:]]).detach()
    assert_same(coherence_gap(bad), coherence_gap(good), atol=1e-12)
