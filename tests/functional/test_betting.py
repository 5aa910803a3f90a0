"""The gambler's capital: fair under the null, the same for every division into batches, and quick to find a change."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_boc.functional.betting import empty_capital, log_bets, place_bets

NOTHING = torch.tensor(0)
p_values = st.lists(st.one_of(st.floats(0, 1), st.just(math.nan)), min_size=1, max_size=40)


def uniform(*shape, seed=0):
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def evidence_by_definition(p):
    """The formula of the module's docstring, term by term."""
    bets = log_bets(p).exp()
    capital = []
    for n in range(1, len(p) + 1):
        begun = 0.0
        for t in range(1, n + 1):
            share = 1 / math.log2(t + 1) - 1 / math.log2(t + 2)
            begun += share * bets[t - 1 : n].prod(0).mean().item()
        capital.append(1 / math.log2(n + 2) + begun)
    return torch.tensor(capital, dtype=torch.float64).log()


def many_streams(p):
    return torch.func.vmap(lambda row: place_bets(row, empty_capital(), NOTHING).evidence)(p)


def test_every_betting_function_has_the_integral_one():
    edges = torch.linspace(0, 1, 200_001, dtype=torch.float64) ** 4  # finer near 0, where the functions are steep
    for half, points in ((0, edges), (1, 1 - edges.flip(0))):
        middle, width = (points[1:] + points[:-1]) / 2, points.diff()
        each = (log_bets(middle).exp() * width.unsqueeze(-1)).sum(0).chunk(2)[half]
        torch.testing.assert_close(each, torch.ones_like(each), rtol=2e-4, atol=0)


def test_the_capital_is_that_of_the_definition():
    p = uniform(25) ** 1.5
    torch.testing.assert_close(
        place_bets(p, empty_capital(), NOTHING).evidence, evidence_by_definition(p), rtol=1e-10, atol=1e-12
    )


@given(p_values, st.integers(1, 7))
def test_batches_of_any_size_give_the_same(values, size):
    p = torch.tensor(values, dtype=torch.float64)
    whole, capital, seen, path = place_bets(p, empty_capital(), NOTHING), empty_capital(), NOTHING, []
    for batch in p.split(size):
        found = place_bets(batch, capital, seen)
        capital, seen = found.capital, seen + (~batch.isnan()).sum()
        path.append(found.evidence)
    torch.testing.assert_close(torch.cat(path), whole.evidence, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(capital.log_shares, whole.capital.log_shares, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(capital.rise, whole.capital.rise, rtol=1e-10, atol=1e-10)


@given(p_values)
def test_nan_is_no_bet_and_does_not_count(values):
    p = torch.tensor(values, dtype=torch.float64)
    kept = ~p.isnan()
    with_nan = place_bets(p, empty_capital(), NOTHING)
    without = place_bets(p[kept], empty_capital(), NOTHING)
    torch.testing.assert_close(with_nan.evidence[kept], without.evidence, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(with_nan.capital.log_shares, without.capital.log_shares, rtol=1e-10, atol=1e-10)


def test_the_expected_capital_is_one_and_false_alarms_are_rare():
    """Over 10,000 streams of 60 samples, of which the longest capital is looked at after each."""
    capital = many_streams(uniform(10_000, 60)).exp()
    for n in (0, 1, 4, 19, 59):
        mean, error = capital[:, n].mean(), capital[:, n].std() / 100
        assert abs(mean - 1) < 4 * error, n
    highest = capital.amax(1)
    for alpha in (0.1, 0.05, 0.01):
        assert (highest >= 1 / alpha).double().mean() <= alpha


@pytest.mark.parametrize("turn", [lambda p: p**3, lambda p: 1 - p**3], ids=["low", "high"])
@pytest.mark.parametrize("before", [0, 10_000])
def test_a_change_is_found_soon_and_its_begin_is_told(turn, before):
    p = uniform(before + 500, seed=3)
    p[before:] = turn(p[before:])
    found = place_bets(p, empty_capital(), NOTHING)
    alarm = int((found.evidence >= math.log(100)).nonzero()[0])
    assert before <= alarm < before + 100
    begin = int(found.capital.begin[found.capital.rise.argmax()])
    assert abs(begin - before) <= 30
