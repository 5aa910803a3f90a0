"""Laws that every public function of logits obeys, over one list of them, and the laws of the probe itself."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.functional.cases import any_float, confident_logits, everything, logits, on_grid, random_logits
from torch_boc.core import chunking
from torch_boc.functional import (
    bag_of_coins,
    choose_temperature,
    dominance_bounds,
    forced_gap,
    log_p_value,
    p_value,
    scores,
    tempered_dominance,
)

EPS = torch.finfo(torch.float64).eps
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
# What moves with the logits, and what is about a place.
SHIFTED = {"energy", "max_logit", "column energy", "top"}
PLACED = {"prediction", "column prediction", "class loss", "class odds", "class rank", "distance", "log_probability"}
few = settings(max_examples=25)


def assert_same(actual, expected, *, without=(), rtol=1e-11, atol=1e-12):
    assert actual.keys() == expected.keys()
    for name in actual.keys() - set(without):
        torch.testing.assert_close(actual[name], expected[name], rtol=rtol, atol=atol, equal_nan=True, msg=name)


@few
@given(logits(elements=on_grid), st.integers(-(10**4), 10**4))
def test_a_shift_changes_nothing(z, shift):
    shifted, expected = everything(z + shift), everything(z)
    assert_same(shifted, expected, without=SHIFTED, rtol=1e-13, atol=0)
    for name in SHIFTED:
        torch.testing.assert_close(shifted[name], expected[name] + shift, rtol=1e-12, atol=1e-12)


@few
@given(logits(elements=on_grid), st.randoms(use_true_random=False))
def test_a_permutation_changes_nothing(z, random):
    order = random.sample(range(z.shape[-1]), z.shape[-1])
    mixed = everything(z[:, order])
    assert_same(mixed, everything(z), without=PLACED)
    top = z[:, order].gather(-1, mixed["prediction"][:, None])
    torch.testing.assert_close(top, z.amax(-1, keepdim=True), rtol=0, atol=0)


def test_dim_is_moveaxis_and_strides_do_not_matter():
    z = random_logits(3, 4, 5, 2)
    for dim in (1, -2, 0):
        assert_same(everything(z, dim=dim), everything(z.movedim(dim, -1).contiguous()))
    assert_same(everything(z[:, ::2, 1:]), everything(z[:, ::2, 1:].contiguous()))


@pytest.mark.parametrize("shape", [(9, 5), (0, 5), (2, 3, 5), (5,), (3, 2051)])
def test_rows_are_computed_alone_in_any_blocks(shape, monkeypatch):
    z = random_logits(*shape)
    whole = everything(z)
    assert {x.shape for x in whole.values()} == {z.shape[:-1]}
    if z.ndim == 2 and len(z):
        parts = [everything(row) for row in z]
        assert_same({name: torch.stack([part[name] for part in parts]) for name in whole}, whole)
    monkeypatch.setattr(chunking, "CPU_ELEMENTS_PER_THREAD", 7)
    assert_same(everything(z), whole)


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_narrow_logits_are_those_of_float64(dtype):
    z = random_logits(8, 10, dtype=dtype)
    found = everything(z)
    keep_dtype, wide = ({name: x.double() for name, x in some.items()} for some in (found, everything(z.double())))
    assert_same(keep_dtype, wide, rtol=1e-4, atol=1e-5)
    assert all(found[name].dtype == torch.float64 for name in scores), "scores are float64 for logits of any dtype"


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_bad_row_is_nan_and_changes_no_other(bad):
    z = random_logits(5, 6)
    spoiled = z.clone()
    spoiled[2, 3] = bad
    found, expected = everything(spoiled), everything(z)
    kept = [0, 1, 3, 4]
    assert_same({name: x[kept] for name, x in found.items()}, {name: x[kept] for name, x in expected.items()})
    for name in found.keys() - {"prediction", "column prediction", "class rank", "tail"}:
        assert not found[name][2].isfinite(), name


@pytest.mark.parametrize("dtype", DTYPES)
@given(z=logits(elements=any_float))
def test_the_numbers_are_in_order(dtype, z):
    coins = bag_of_coins(z.to(dtype))
    assert (coins.gap >= 0).all()
    assert ((coins.concentration >= 0) & (coins.concentration <= 1)).all()
    if z.shape[-1] == 2:
        assert (coins.gap == 0).all()
    if dtype == torch.float64:
        lower, upper = dominance_bounds(coins.odds, z.shape[-1])
        assert (coins.confidence <= lower + 2 * EPS).all()
        assert (lower <= coins.dominance + 4 * EPS).all()
        assert (coins.dominance <= upper + 4 * EPS).all()
        assert (coins.gap >= forced_gap(coins.odds, z.shape[-1]) * (1 - 1e-13)).all()


@given(logits(elements=on_grid), st.integers(0, 11))
def test_a_tie_at_the_top_is_a_rival_with_an_even_coin(z, place):
    """Raise one more class to the top: whichever of the two is predicted, the outputs are those of the definition."""
    tied = z.clone()
    tied[:, place % z.shape[-1]] = z.amax(-1)
    coins = bag_of_coins(tied)
    dominance = (torch.sigmoid(tied.amax(-1, keepdim=True) - tied).sum(-1) - 0.5) / (z.shape[-1] - 1)
    torch.testing.assert_close(coins.dominance, dominance, rtol=1e-13, atol=0)
    assert coins.prediction.tolist() == tied.argmax(-1).tolist()


@given(logits(elements=any_float), st.integers(1, 60))
def test_p_values_are_probabilities_that_fall_as_wins_rise(z, trials):
    coins = bag_of_coins(z)
    torch.testing.assert_close(p_value(coins, trials), log_p_value(coins, trials).exp(), rtol=0, atol=0)
    logs = log_p_value(coins, trials, wins=torch.arange(-1.0, trials + 2)[:, None])
    assert (logs[0] == 0).all()
    assert (logs[-1] == -torch.inf).all()
    assert (logs[1:] <= logs[:-1] + 1e-12).all()


@given(logits(elements=on_grid), st.floats(0.1, 50))
def test_tempered_coins_fall_with_the_temperature_to_one_half(z, temperature):
    cool, warm, hot = (tempered_dominance(z, t) for t in (temperature, 2 * temperature, 1e9))
    assert (cool >= warm - 1e-12).all()
    torch.testing.assert_close(hot, torch.full_like(hot, 0.5), rtol=0, atol=1e-6)
    torch.testing.assert_close(tempered_dominance(z, 1.0), bag_of_coins(z).dominance, rtol=1e-14, atol=0)


def test_the_chosen_temperature_has_the_median_that_was_asked_for():
    z = 5 * random_logits(501, 10, dtype=torch.float32)
    for dominance in (0.6, 0.9, 0.99):
        chosen = choose_temperature(z, dominance=dominance)
        assert float(tempered_dominance(z, chosen).median()) == pytest.approx(dominance, abs=1e-5)
    z, nothing = z.double(), torch.full((40, 10), torch.nan, dtype=torch.float64)
    one = float(choose_temperature(z))
    assert float(choose_temperature(3 * torch.cat([z, nothing]).T + 7, dim=0)) == pytest.approx(3 * one, rel=2e-6)


@pytest.mark.parametrize("name", ["msp", "log_odds", "gap", "entropy", "gen", "log_p_value", "dominance"])
def test_confident_rows_do_not_tie(name):
    """A float32 softmax is 1 from odds of 6e-8 on; the scores still tell such rows apart, to 1e-12 or beyond."""
    z = torch.stack([confident_logits(10, odds) for odds in (1e-12, 1e-11, 1e-10, 1e-9, 1e-8)]).float()
    assert (scores[name](z).diff() < 0).all()


@pytest.mark.parametrize("name", list(scores))
def test_higher_is_more_in_distribution_but_for_the_paper_score(name):
    in_distribution, ood = random_logits(200, 10, scale=0.3, seed=1), random_logits(200, 10, scale=0.3, seed=2)
    in_distribution[:, 4] += 10.0  # one class far above rivals that are alike
    ood[:, 2] += 4.0  # two classes close together, not far above the others
    ood[:, 7] += 3.5
    area = (scores[name](in_distribution)[:, None] > scores[name](ood)).double().mean()
    assert scores[name].upside_down == (name == "structural_score")
    assert area < 0.05 if scores[name].upside_down else area > 0.95
