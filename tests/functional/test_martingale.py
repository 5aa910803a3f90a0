"""The wealth of the bets: fair under the null, the same for every division into batches, and quick to find a change."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_boc.core.martingale import log_bets
from torch_boc.functional.martingale import BINS, HISTOGRAMS, empty_martingale, histogram_bets, update_martingale

NOTHING = torch.tensor(0)
p_values = st.lists(st.one_of(st.floats(0, 1), st.just(math.nan)), min_size=1, max_size=40)


def uniform(*shape, seed=0):
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def evidence_by_definition(p, endless):
    """The formulas of the module's docstring, term by term."""
    bets = log_bets(p).exp()
    wealth = []
    for n in range(1, len(p) + 1):
        begun = 0.0
        for t in range(1, n + 1):
            share = 1.0 if endless else 1 / math.log2(t + 1) - 1 / math.log2(t + 2)
            begun += share * bets[t - 1 : n].prod(0).mean().item()
        wealth.append(begun if endless else 1 / math.log2(n + 2) + begun)
    return torch.tensor(wealth, dtype=torch.float64).log()


def many_streams(p, endless=False):
    return torch.func.vmap(lambda row: update_martingale(row, empty_martingale(), NOTHING, endless=endless).evidence)(p)


def test_every_betting_function_has_the_integral_one():
    edges = torch.linspace(0, 1, 200_001, dtype=torch.float64) ** 4  # finer near 0, where the functions are steep
    for half, points in ((0, edges), (1, 1 - edges.flip(0))):
        middle, width = (points[1:] + points[:-1]) / 2, points.diff()
        each = (log_bets(middle).exp() * width.unsqueeze(-1)).sum(0).chunk(2)[half]
        torch.testing.assert_close(each, torch.ones_like(each), rtol=2e-4, atol=0)


@pytest.mark.parametrize("endless", [False, True])
def test_the_wealth_is_that_of_the_definition(endless):
    p = uniform(25) ** 1.5
    found = update_martingale(p, empty_martingale(), NOTHING, endless=endless).evidence
    torch.testing.assert_close(found, evidence_by_definition(p, endless), rtol=1e-10, atol=1e-12)


def test_false_alarms_of_an_endless_stream_are_as_rare_as_guaranteed():
    """The mean time until a wealth of 200 is at least 200; streams end after 2,000 samples, which lowers the mean."""
    reached = many_streams(uniform(300, 2000, seed=1), endless=True) >= math.log(200)
    time = torch.where(reached.any(1), reached.int().argmax(1) + 1, 2000).double()
    assert time.mean() > 200
    assert time.mean() < 2000


def test_histogram_bets_are_those_of_the_samples_before():
    p = torch.cat([uniform(60), 0.3 + 0.1 * uniform(60)])
    p[7] = math.nan
    found, histograms = histogram_bets(p, torch.zeros(2, BINS, dtype=torch.float64))
    for place, (bins, discount) in enumerate(HISTOGRAMS):
        counts = [0.0] * bins
        for value, gain in zip(p.tolist(), found[:, place].tolist(), strict=True):
            if math.isnan(value):
                assert gain == 0
                continue
            own = min(int(value * bins), bins - 1)
            assert gain == pytest.approx(math.log(bins * (counts[own] + 0.5) / (sum(counts) + 0.5 * bins)), abs=1e-9)
            counts = [discount * x for x in counts]
            counts[own] += 1
        torch.testing.assert_close(histograms[place, :bins], torch.tensor(counts, dtype=torch.float64))
    assert (found[-20:].sum(0) > 20).all()


@given(p_values)
def test_nan_is_no_bet_and_does_not_count(values):
    p = torch.tensor(values, dtype=torch.float64)
    kept = ~p.isnan()
    with_nan = update_martingale(p, empty_martingale(), NOTHING)
    without = update_martingale(p[kept], empty_martingale(), NOTHING)
    torch.testing.assert_close(with_nan.evidence[kept], without.evidence, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(with_nan.state.log_shares, without.state.log_shares, rtol=1e-10, atol=1e-10)


def test_the_expected_wealth_is_one_and_false_alarms_are_rare():
    """Over 10,000 streams of 60 samples, of which the longest wealth is looked at after each."""
    wealth = many_streams(uniform(10_000, 60)).exp()
    for n in (0, 1, 4, 9):  # later means are those of few rich streams
        mean, error = wealth[:, n].mean(), wealth[:, n].std() / 100
        assert abs(mean - 1) < 4 * error, n
    highest = wealth.amax(1)
    for alpha in (0.1, 0.05, 0.01):
        assert (highest >= 1 / alpha).double().mean() <= alpha


@pytest.mark.parametrize("turn", [lambda p: p**3, lambda p: 1 - p**3], ids=["low", "high"])
@pytest.mark.parametrize("before", [0, 10_000])
def test_a_change_is_found_soon_and_its_begin_is_told(turn, before):
    p = uniform(before + 500, seed=3)
    p[before:] = turn(p[before:])
    found = update_martingale(p, empty_martingale(), NOTHING)
    alarm = int((found.evidence >= math.log(100)).nonzero()[0])
    assert before <= alarm < before + 100
    begin = int(found.state.begin[found.state.rise.argmax()])
    assert abs(begin - before) <= 30
