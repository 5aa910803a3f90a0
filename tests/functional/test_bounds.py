"""What the confidence alone decides: the bounds are reached by the rows that they claim to be reached by."""

import pytest
import torch
from hypothesis import given

from tests import reference
from tests.functional.cases import any_float, logits, relative_error
from torch_boc.functional import bag_of_coins, dominance_bounds, forced_gap

CLASSES = (2, 3, 4, 10, 1000, 128256)


def odds_for(classes):
    """Odds from 0 to C - 1, at and near whole numbers, where the bound on few rivals has a kink."""
    spread = torch.logspace(-25, 0, 26, dtype=torch.float64) * (classes - 1)
    whole = torch.arange(min(classes, 6), dtype=torch.float64)
    near = torch.cat([whole * (1 - 1e-9), whole * (1 + 1e-9)])
    return torch.cat([spread, whole, near[near <= classes - 1]])


@pytest.mark.parametrize("classes", CLASSES)
def test_bounds_are_the_dominance_of_the_extreme_rows_and_give_the_forced_gap(classes):
    odds = odds_for(classes)
    with reference.mp.workdps(60):
        expected = [reference.dominance_bounds(x, classes) for x in odds.tolist()]
        pairs = zip(odds.tolist(), expected, strict=True)
        forced = [lower - 1 / (1 + reference.mpf(x)) if classes > 2 else reference.mpf(0) for x, (lower, _) in pairs]
    for bound, side in zip(dominance_bounds(odds, classes), zip(*expected, strict=True), strict=True):
        assert relative_error(bound, side).max() <= 1e-14
    assert relative_error(forced_gap(odds, classes), forced).max() <= 1e-14


@pytest.mark.parametrize("classes", [4, 10, 1000])
@pytest.mark.parametrize("drop", [1e-6, 0.5, 3.0, 40.0])
@pytest.mark.parametrize("heap", [None, 0, 1, 2])
def test_rivals_that_reach_the_bounds(classes, drop, heap):
    """Evenly matched ones the lower bound; a heap on few of them the upper one."""
    z = torch.full((1, classes), -drop if heap is None else -torch.inf, dtype=torch.float64)
    z[:, : (heap or 0) + 1] = 0
    if heap is not None:
        z[:, heap + 1] = -drop
    coins = bag_of_coins(z)
    bound = dominance_bounds(coins.odds, classes)[heap is not None]
    torch.testing.assert_close(coins.dominance, bound, rtol=2e-15, atol=0)
    assert coins.concentration.item() == pytest.approx(float(heap is not None), abs=1e-3 if heap is None else 1e-9)
    if heap is None:
        torch.testing.assert_close(coins.gap, forced_gap(coins.odds, classes), rtol=1e-13, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("row", [[1.0] * 5, [0.0, -800.0, -900.0], [3.0, 3.0], [7.0, -2.0]])
def test_concentration_is_zero_where_nothing_is_left_to_place(row, dtype):
    z = torch.tensor([row], dtype=dtype, requires_grad=True)
    concentration = bag_of_coins(z).concentration
    assert concentration.item() == 0
    concentration.backward()
    assert (z.grad == 0).all()


@given(logits(elements=any_float))
def test_the_gap_is_the_forced_and_the_free_part(z):
    coins = bag_of_coins(z)
    assert (coins.free_gap >= 0).all()
    forced = forced_gap(coins.odds, z.shape[-1])
    torch.testing.assert_close(forced + coins.free_gap, coins.gap, rtol=1e-12, atol=1e-15)


def test_the_curves_of_the_paper_lie_inside_the_bounds():
    """C = 10 at confidence 0.385, where it reports a gap of 0.49, and C = 4 at 0.5, where it reports 0.31."""
    for classes, confidence, reported in ((10, 0.385, 0.49), (4, 0.5, 0.31)):
        odds = torch.tensor((1 - confidence) / confidence, dtype=torch.float64)
        lower, upper = dominance_bounds(odds, classes)
        assert lower - confidence < reported < upper - confidence
    torch.testing.assert_close(forced_gap(torch.tensor(0.615 / 0.385), 10), torch.tensor(0.464), rtol=0, atol=5e-4)
    lower, upper = dominance_bounds(torch.tensor(1.0), 4)
    torch.testing.assert_close(torch.stack([lower, upper]) - 0.5, torch.tensor([0.25, 1 / 3]), rtol=1e-6, atol=0)
