"""Wins, p-values and the paper's score."""

import pytest
import torch

from tests import reference
from tests.functional.cases import INF, NAN, as_tensor, confident_logits, random_logits
from torch_boc.functional import (
    bag_of_coins,
    binomial_tail,
    expected_wins,
    flip_coins,
    log_p_value,
    p_value,
    sample_wins,
    structural_score,
)

TRIALS = (1, 2, 20, 50, 100, 200, 10_000)


def rows(classes):
    confident = [confident_logits(classes, odds) for odds in (1e-2, 1e-5, 1e-12, 1e-25)]
    return torch.cat([random_logits(6, classes, seed=classes), torch.stack(confident)])


@pytest.mark.parametrize("trials", TRIALS)
@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_the_deterministic_test_is_that_of_algorithm_1(classes, trials):
    z = rows(classes)
    coins = bag_of_coins(z)
    wins = [reference.expected_wins(row, trials) for row in z.tolist()]
    logs = as_tensor([reference.log_p_value(row, trials) for row in z.tolist()])
    assert expected_wins(coins, trials).tolist() == wins
    torch.testing.assert_close(log_p_value(coins, trials), logs, rtol=1e-10, atol=0)
    torch.testing.assert_close(p_value(coins, trials), logs.exp(), rtol=1e-10, atol=0)
    torch.testing.assert_close(structural_score(coins, trials), -torch.expm1(logs), rtol=1e-10, atol=0)


def test_expected_wins_round_half_to_even():
    even = bag_of_coins(torch.zeros(1, 2))
    assert [expected_wins(even, trials).item() for trials in (1, 2, 3, 5, 7)] == [0, 1, 2, 2, 4]


@pytest.mark.parametrize("trials", [1, 7, 100])
def test_given_wins_take_the_place_of_the_expected_ones(trials):
    coins = bag_of_coins(rows(4))
    wins = torch.arange(10.0).fmod(trials + 1)
    torch.testing.assert_close(p_value(coins, trials, wins=wins), binomial_tail(wins, trials, coins.confidence))
    torch.testing.assert_close(log_p_value(coins, trials, wins=wins).exp(), p_value(coins, trials, wins=wins))


def generator(seed):
    return torch.Generator().manual_seed(seed)


DRAWS = {
    "sample_wins": lambda z, g: sample_wins(bag_of_coins(z), 50, generator=g),
    "flip_coins": lambda z, g: flip_coins(z, 50, generator=g),
}
draws = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())


@draws
def test_the_generator_decides_or_else_the_global_seed(draw):
    z = random_logits(40, 6)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = draw(z, generator(1))
    assert (torch.get_rng_state() == state).all()
    assert torch.equal(draw(z, generator(1)), first)
    assert (draw(z, generator(2)) != first).any()
    unseeded = draw(z, None)
    torch.set_rng_state(state)
    assert torch.equal(draw(z, None), unseeded)


@draws
@pytest.mark.parametrize("bad", [NAN, INF])
def test_draws_are_counts_and_a_bad_row_stays_in_its_row(draw, bad):
    z = random_logits(2, 100, 3, scale=0.1, dtype=torch.float32)
    z[1, 7, 2] = bad
    wins = draw(z, generator(0))
    assert (wins.shape, wins.dtype) == ((2, 100), torch.float64)
    assert wins.isnan().nonzero().tolist() == [[1, 7]]
    wins = wins[~wins.isnan()]
    assert ((wins >= 0) & (wins <= 50) & (wins == wins.round())).all()
    assert wins.unique().numel() > 5


def test_a_top_that_never_loses_always_wins_and_dim_is_the_class_axis():
    z = torch.tensor([[0.0, 900.0, 0.0], [5.0, -INF, -INF]])
    assert sample_wins(bag_of_coins(z), 30).tolist() == [30, 30]
    assert flip_coins(z, 30).tolist() == [30, 30]
    z = random_logits(6, 40)
    torch.testing.assert_close(flip_coins(z, dim=0, generator=generator(1)), flip_coins(z.T, generator=generator(1)))
