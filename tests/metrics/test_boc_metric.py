import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests import reference
from tests.metrics.cases import joined, labelled_batches
from tests.metrics.tester import check_metric
from torch_boc import BoCMetric
from torch_boc.core.tally import empty_tally
from torch_boc.functional import bag_of_coins, boc_summary, gather
from torch_boc.functional.summary import QUANTILES
from torch_boc.functional.tally import gap_edges, tally

KEYS = [
    "samples",
    "invalid",
    "confidence",
    "dominance",
    "gap",
    "forced_gap",
    "free_gap",
    "concentration",
    "p_value",
    "gap_std",
    "rejection_rate",
    "structural_score",
    "gap_q05",
    "gap_q50",
    "gap_q95",
    "accuracy",
    "ece_confidence",
    "ece_dominance",
    "nll",
    "brier_confidence",
    "brier_dominance",
    "gap_correct",
    "gap_wrong",
]


@pytest.mark.parametrize("options", [{}, {"trials": 20, "bins": 10, "alpha": 0.2}, {"ignore_index": 3}], ids=str)
def test_class_is_function_however_the_data_come(options):
    batches = labelled_batches(50, 8, 31)
    check_metric(lambda: BoCMetric(**options), batches, boc_summary(*joined(batches), **options))


def test_agrees_with_numpy():
    logits, target = joined(labelled_batches(400, classes=5))
    expected = reference.summary(logits.numpy(), target.numpy())
    result = boc_summary(logits, target)
    for key, value in expected.items():
        assert result[key].item() == pytest.approx(value, abs=1e-9), key


def test_keys_are_stable():
    metric = BoCMetric()
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        assert list(metric.compute()) == KEYS
    metric.reset()
    metric.update(torch.randn(4, 3))
    assert list(metric.compute()) == KEYS


def test_chosen_keys_come_in_their_order_under_the_prefix():
    batches = labelled_batches(20, 30)
    expected = boc_summary(*joined(batches))
    metric = BoCMetric(keys=["nll", "gap", "nll"], prefix="val/boc/")
    check_metric(metric.clone, batches, {f"val/boc/{key}": expected[key] for key in ("nll", "gap")})
    metric.update(*batches[0])
    assert list(metric.compute()) == ["val/boc/nll", "val/boc/gap"]


def test_without_targets_only_what_needs_them_is_nan():
    result = boc_summary(labelled_batches(20)[0][0])
    assert {key for key, value in result.items() if value.isnan()} == set(KEYS[15:])


def test_targets_may_come_with_some_batches_only():
    (first, labels), (second, _) = labelled_batches(30, 20)
    metric = BoCMetric()
    metric.update(first, labels)
    metric.update(second)
    result, labelled, everything = metric.compute(), boc_summary(first, labels), boc_summary(torch.cat([first, second]))
    for key in KEYS:
        torch.testing.assert_close(result[key], (everything if KEYS.index(key) < 15 else labelled)[key])


@given(st.lists(st.floats(-14, 0), min_size=1, max_size=30))
def test_quantiles_are_within_one_bin(exponents):
    gaps = torch.tensor([10**x for x in exponents], dtype=torch.float64)
    logits = torch.stack([gaps.new_zeros(len(gaps)), (gaps / 2).log(), gaps.log()], -1)
    coins = bag_of_coins(logits)
    result = boc_summary(logits)
    for key, level in QUANTILES.items():
        lower = coins.gap.quantile(level, interpolation="lower").item()
        higher = coins.gap.quantile(level, interpolation="higher").item()
        low, high = (0.0 if gap < 1e-12 else gap for gap in (lower, higher))
        assert low / 1.05 <= result[key].item() <= high * 1.05 + 1e-12


def test_histogram_covers_every_gap():
    edges = gap_edges()
    assert len(edges) == len(empty_tally().gap_histogram) + 1
    assert edges[:2] == [0, 1e-12]
    assert edges[-1] == 1
    logits = torch.tensor([[0.0, -200.0, -300.0], [0.0, 0.0, 0.0], [0.0, -1.0, -2.0]])
    histogram = tally(gather(logits)).gap_histogram
    assert histogram.sum() == 3
    assert histogram[0] == 1
    gap = bag_of_coins(logits[2]).gap.item()
    place = histogram.nonzero()[1].item()
    assert edges[place] <= gap <= edges[place + 1]
