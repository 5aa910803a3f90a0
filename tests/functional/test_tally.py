"""Tallies of numbers that are off by a rounding, or no numbers: clamped or counted as invalid, never an index."""

import pytest
import torch

from tests.functional.cases import INF, NAN, random_logits
from torch_boc.core.schema import Counts
from torch_boc.core.tally import empty_tally, equal_bin
from torch_boc.functional import Coins, bag_of_coins, forced_gap
from torch_boc.functional.per_sample import SampleStats
from torch_boc.functional.summary import summarize
from torch_boc.functional.tally import add_gaps, add_sample_stats


def tally(stats):
    total = empty_tally()
    add_sample_stats(total, stats)
    return total


def float32_columns(classes, count=2000):
    """Coins as they come back from columns in float32, as on MPS: odds and loss are rounded apart."""
    coins = bag_of_coins(random_logits(count, classes))
    return Coins(coins.prediction, *(x.float().double() for x in coins[1:5]))


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_gaps_that_rounding_made_negative_count_as_zero(classes):
    coins = float32_columns(classes)
    assert (coins.gap < 0).any() == (classes == 2)
    total = tally(SampleStats(coins, classes))
    assert total.gap_histogram.sum() == 2000
    summary = summarize(total)
    assert all(summary[name] >= 0 for name in ("gap", "forced_gap", "free_gap", "gap_q05", "gap_std"))
    if classes == 2:
        assert summary["gap"] < 1e-7
        assert summary["gap_q05"] == 0


def test_a_negative_free_gap_counts_as_zero():
    coins = float32_columns(5)
    coins = coins._replace(free_gap=coins.free_gap - 2 * coins.free_gap.max())
    assert summarize(tally(SampleStats(coins, 5)))["free_gap"] == 0


@pytest.mark.parametrize("name", ["odds", "loss", "concentration", "free_gap"])
def test_a_row_with_nan_in_any_column_is_invalid_and_counts_nowhere_else(name):
    coins = float32_columns(5, 10)
    bad = coins._replace(**{name: getattr(coins, name).clone()})
    getattr(bad, name)[3] = NAN
    found = summarize(tally(SampleStats(bad, 5)))
    assert (found["samples"], found["invalid"]) == (9, 1)
    assert not any(found[key].isnan() for key in ("gap", "free_gap", "concentration", "gap_q50", "p_value"))


def test_no_number_makes_an_index_outside_of_the_bins():
    odd = torch.tensor([NAN, INF, -INF, -1.0, -1e-9, -0.5, 0.0, 1e300, 0.5], dtype=torch.float64)
    assert equal_bin(odd, 15).tolist() == [0, 14, 0, 0, 0, 0, 0, 14, 7]
    columns = torch.cartesian_prod(odd, odd, odd, odd).T
    total = tally(SampleStats(Coins(torch.zeros(columns.shape[1], dtype=torch.int64), *columns), 5))
    counts = Counts(*total.counts.tolist())
    assert (counts.samples, counts.invalid) == (6**4, 9**4 - 6**4)
    assert total.gap_histogram.sum() == total.bin_counts[0].sum() == counts.samples


@pytest.mark.parametrize("part", ["forced", "free"])
def test_parts_of_the_gap_with_more_axes(part):
    logits = random_logits(2, 3, 5)
    states = [torch.zeros(1, dtype=torch.float64), *torch.zeros(2, 1, dtype=torch.int64)]
    add_gaps(states, logits, part=part)
    coins = bag_of_coins(logits)
    expected = coins.free_gap if part == "free" else forced_gap(coins.odds, 5)
    torch.testing.assert_close(states[0], expected.sum().view(1))
    assert int(states[1]) == 6
