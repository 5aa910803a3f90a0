"""Laws of the probe that hold for every row."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.functional.cases import any_float, as_dict, logits, on_grid
from torch_boc.functional import bag_of_coins, dominance_bounds, forced_gap, log_p_value, p_value

EPS = torch.finfo(torch.float64).eps


def assert_same(actual, expected, *, ignore=(), rtol=1e-12, atol=1e-12):
    actual, expected = as_dict(actual), as_dict(expected)
    for name in actual.keys() - set(ignore):
        value, other = actual[name], expected[name]
        torch.testing.assert_close(value, other, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


@given(logits(elements=any_float))
def test_confidence_and_bounds_and_dominance_are_in_order(z):
    coins = bag_of_coins(z)
    lower, upper = dominance_bounds(coins.odds, z.shape[-1])
    assert (coins.confidence <= lower + 2 * EPS).all()
    assert (lower <= coins.dominance + 4 * EPS).all()
    assert (coins.dominance <= upper + 4 * EPS).all()
    assert (coins.dominance >= 0.5 - 2 * EPS).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@given(z=logits(elements=any_float))
def test_concentration_is_a_share(dtype, z):
    concentration = bag_of_coins(z.to(dtype)).concentration
    assert ((concentration >= 0) & (concentration <= 1)).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@given(z=logits(elements=any_float))
def test_the_gap_is_never_negative(dtype, z):
    assert (bag_of_coins(z.to(dtype)).gap >= 0).all()


@given(logits(elements=any_float, min_classes=3))
def test_the_gap_is_never_below_the_forced_gap(z):
    coins = bag_of_coins(z)
    assert (coins.gap >= forced_gap(coins.odds, z.shape[-1]) * (1 - 1e-13)).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@given(row=st.tuples(any_float, any_float))
def test_two_classes_have_no_gap(dtype, row):
    coins = bag_of_coins(torch.tensor([row], dtype=dtype))
    assert coins.gap.item() == 0
    assert coins.concentration.item() == 0


@given(logits(elements=on_grid), st.integers(-(10**6), 10**6))
def test_a_shift_changes_nothing(z, shift):
    assert_same(bag_of_coins(z + shift), bag_of_coins(z), rtol=0, atol=0)


@given(logits(elements=on_grid), st.randoms(use_true_random=False))
def test_a_permutation_changes_nothing(z, random):
    order = random.sample(range(z.shape[-1]), z.shape[-1])
    coins, mixed = bag_of_coins(z), bag_of_coins(z[:, order])
    assert_same(mixed, coins, ignore=["prediction"])
    torch.testing.assert_close(z[:, order].gather(-1, mixed.prediction[:, None]), z.amax(-1, keepdim=True))


@given(logits(elements=on_grid), st.integers(0, 11))
def test_a_tie_at_the_top_is_a_rival_with_an_even_coin(z, place):
    """Raise one more class to the top: whichever of the two is predicted, the outputs are those of the definition."""
    tied = z.clone()
    tied[:, place % z.shape[-1]] = z.amax(-1)
    coins = bag_of_coins(tied)
    top = tied.amax(-1, keepdim=True)
    wins = torch.sigmoid(top - tied)
    dominance = (wins.sum(-1) - 0.5) / (z.shape[-1] - 1)
    torch.testing.assert_close(coins.dominance, dominance, rtol=1e-13, atol=0)
    torch.testing.assert_close(coins.confidence, tied.softmax(-1).amax(-1), rtol=1e-13, atol=0)
    torch.testing.assert_close(tied.gather(-1, coins.prediction[:, None]), top, rtol=0, atol=0)


@given(logits(elements=any_float))
def test_a_class_of_minus_infinity_always_loses(z):
    """One more rival without weight: the odds stay, and the loss is a mean over one rival more."""
    coins = bag_of_coins(z)
    more = bag_of_coins(torch.cat([z, torch.full_like(z[:, :1], -torch.inf)], -1))
    rivals = z.shape[-1] - 1
    torch.testing.assert_close(more.odds, coins.odds, rtol=1e-14, atol=0)
    torch.testing.assert_close(more.loss, coins.loss * rivals / (rivals + 1), rtol=1e-13, atol=0)


@given(logits(elements=any_float), st.integers(1, 300))
def test_p_values_are_probabilities(z, trials):
    coins = bag_of_coins(z)
    p = p_value(coins, trials)
    assert ((p >= 0) & (p <= 1)).all()
    torch.testing.assert_close(p, log_p_value(coins, trials).exp(), rtol=0, atol=0)


@given(logits(elements=any_float), st.integers(1, 60))
def test_p_values_fall_as_wins_rise(z, trials):
    coins = bag_of_coins(z)
    wins = torch.arange(-1.0, trials + 2)[:, None]
    logs = log_p_value(coins, trials, wins=wins)
    assert (logs[0] == 0).all()
    assert (logs[-1] == -torch.inf).all()
    assert (logs[1:] <= logs[:-1] + 1e-12).all()
