"""Conformal p-values: valid whatever the scores are, and the same for every order and every division into batches."""

import itertools
import math

import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_boc.functional.conformal import look_up_ranks, rank_p_values, seeded_uniforms, stream_p_values
from torch_boc.functional.score_bins import count_bins

few_values = st.lists(st.integers(0, 3), min_size=1, max_size=7)


def count_all(place, places, group=None, groups=1):
    return count_bins(place, torch.ones_like(place, dtype=torch.bool), places, group, groups)


def ranks_among(held_out, place, places):
    counts = count_all(torch.tensor(held_out, dtype=torch.int64), places)
    return look_up_ranks(counts, counts.cumsum(-1), place)


@given(few_values)
def test_conservative_p_values_are_super_uniform(values):
    """Exactly: each of n + 1 exchangeable samples is equally likely to be the one that is tested."""
    p = []
    for i, own in enumerate(values):
        p.append(rank_p_values(ranks_among(values[:i] + values[i + 1 :], torch.tensor([own]), 4)).item())
    for level in {0.05, 0.3, *p}:
        assert sum(x <= level for x in p) / len(p) <= level + 1e-12


@given(few_values, st.floats(0, 1))
def test_smoothed_p_values_are_uniform(values, level):
    """Exactly: given the ranks, a smoothed p-value is uniform between its values at U = 0 and at U = 1."""
    chance = 0.0
    for i, own in enumerate(values):
        ranks = ranks_among(values[:i] + values[i + 1 :], torch.tensor([own]), 4)
        low, high = (rank_p_values(ranks, torch.tensor([u], dtype=torch.float64)).item() for u in (0.0, 1.0))
        chance += min(max((level - low) / (high - low), 0.0), 1.0) / len(values)
    assert chance == pytest.approx(level, abs=1e-9)


@given(st.data())
def test_groups_are_tests_of_their_own(data):
    size = data.draw(st.integers(1, 30))
    place, group = (torch.tensor(data.draw(st.lists(st.integers(0, k), min_size=size, max_size=size))) for k in (9, 2))
    counts = count_all(place, 10, group, 3)
    p = rank_p_values(look_up_ranks(counts, counts.cumsum(-1), place, group))
    for g in range(3):
        alone = ranks_among(place[group == g].tolist(), place[group == g], 10)
        assert torch.equal(p[group == g], rank_p_values(alone))


def test_an_empty_group_gives_no_evidence():
    counts = torch.zeros(2, 10, dtype=torch.int64)
    ranks = look_up_ranks(counts, counts.cumsum(-1), torch.tensor([0, 5]), torch.tensor([0, 1]))
    assert rank_p_values(ranks).tolist() == [1.0, 1.0]


@given(st.data())
def test_a_stream_is_ranked_as_one_sample_at_a_time(data):
    size = data.draw(st.integers(1, 20))
    place, group = (torch.tensor(data.draw(st.lists(st.integers(0, k), min_size=size, max_size=size))) for k in (4, 1))
    valid = torch.tensor(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    counts = count_all(torch.arange(5).repeat(2), 5, torch.arange(10) // 5, 2)
    uniform = seeded_uniforms(0, torch.arange(size))
    batch = stream_p_values(counts, place, group, valid, uniform)
    assert torch.equal(batch.isnan(), ~valid)
    for i in range(size):
        one = slice(i, i + 1)
        single = look_up_ranks(counts, counts.cumsum(-1), place[one], group[one])
        assert not valid[i] or batch[i] == rank_p_values(single, uniform[one])
        counts = counts + count_bins(place[one], valid[one], 5, group[one], 2)


def test_seeded_numbers_are_uniform_and_independent():
    index = torch.arange(100_000)
    rows = torch.stack([seeded_uniforms(seed, index) for seed in range(4)])
    assert ((rows > 0) & (rows < 1)).all()
    for row in rows:
        assert scipy.stats.kstest(row.numpy(), "uniform").pvalue > 1e-3
    shifted = torch.cat([rows[:, :-1], rows[:, 1:]])
    correlation = torch.corrcoef(shifted).fill_diagonal_(0.0)
    assert correlation.abs().max() < 5 / math.sqrt(100_000)


def test_seeded_numbers_depend_on_seed_and_index_alone():
    index = torch.arange(50)
    assert torch.equal(seeded_uniforms(5, index)[10:], seeded_uniforms(5, index[10:]))
    assert (seeded_uniforms(5, index) != seeded_uniforms(6, index)).all()
    assert len(set(itertools.chain(*(seeded_uniforms(s, index).tolist() for s in (0, -1, 2**60))))) == 150
