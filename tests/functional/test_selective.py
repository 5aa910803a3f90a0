"""Acceptance at an error: the guarantee under a known truth, the chains by their definition, the curves by sorting."""

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.stats import binom

from torch_boc.functional import augrc, aurc, coverage_at_error
from torch_boc.functional.conformal import lower_tail
from torch_boc.functional.selective import chain_starts, lowest_accepted_bin, required_samples

# The chance of each of 30 places, and the risk there, from the lowest place to the highest.
EVEN = np.full(30, 1 / 30)
TRUTHS = {
    "falling": np.linspace(0.3, 0.0, 30),
    "too high everywhere": np.full(30, 0.0601),
    "just too high below": np.r_[np.full(20, 0.09), np.full(10, 0.0)],
    "mistakes at the top": np.r_[np.full(20, 0.04), np.full(8, 0.0), np.full(2, 0.4)],
    "up and down": np.tile([0.0, 0.14], 15)[::-1],
}


def drawn(risk, samples, rng):
    """Counts of right and wrong predictions by place."""
    here = rng.multinomial(samples, EVEN)
    wrong = rng.binomial(here, risk)
    return torch.tensor(here - wrong), torch.tensor(wrong)


@pytest.mark.parametrize("name", TRUTHS)
def test_the_guarantee_holds_under_a_known_truth(name):
    """The true error above the threshold exceeds 6 % in at most 10 % of 500 sets of held-out samples."""
    rng, risk, broken, accepted = np.random.default_rng(0), TRUTHS[name], 0, 0
    true_error = np.cumsum((EVEN * risk)[::-1])[::-1] / np.cumsum(EVEN[::-1])[::-1]
    for _ in range(500):
        place = lowest_accepted_bin(*drawn(risk, 1500, rng), 0.06, 0.1)
        accepted += place < 30
        broken += place < 30 and true_error[place] > 0.06
    assert broken <= 50 + 3 * np.sqrt(45)
    assert accepted >= 480 or name not in ("falling", "just too high below")


@pytest.mark.parametrize("seed", range(20))
def test_the_place_is_that_of_chains_by_their_definition(seed):
    rng = np.random.default_rng(seed)
    risk = rng.uniform(0, 0.2) * np.sort(rng.uniform(size=30))[::-1] ** 3
    right, wrong = drawn(risk, int(rng.integers(50, 3000)), rng)
    number, bad = (x.flip(0).cumsum(0).flip(0).numpy() for x in (right + wrong, wrong))
    begins, chance = chain_starts(int(number[0]), 0.05, 0.1)
    rejected = binom.cdf(bad, number, 0.05) <= chance
    lowest = 30
    for mistakes in begins:
        starts = [p for p in range(30) if binom.cdf(mistakes, number[p], 0.05) <= chance]
        place = max(starts, default=-1)
        while place >= 0 and rejected[place]:
            lowest, place = min(lowest, place), place - 1
    assert lowest_accepted_bin(right, wrong, 0.05, 0.1) == lowest


def test_delta_is_shared_by_chains_that_can_begin():
    assert [required_samples(2, 0.01, 0.05 / 3), required_samples(6, 0.01, 0.05 / 3)] == [773, 1371]
    assert [len(chain_starts(n, 0.01, 0.05)[0]) for n in (1, 1545, 1546, 2741, 2742)] == [1, 1, 2, 2, 3]
    for samples, lowest in ((298, 1), (299, 0)):  # all right
        assert lowest_accepted_bin(torch.tensor([samples]), torch.tensor([0]), 0.01, 0.05) == lowest


@pytest.mark.parametrize(("wrong", "samples", "error"), [(0, 300, 0.01), (7, 2000, 0.01), (4200, 10**6, 0.0045)])
def test_the_chance_of_so_few_mistakes_is_the_binomial_one(wrong, samples, error):
    for bad in (wrong, samples - wrong, int(samples * error) + wrong):
        assert lower_tail(bad, samples, error) == pytest.approx(binom.cdf(bad, samples, error), rel=1e-8)
    needed = required_samples(wrong, error, 0.02)
    assert binom.cdf(wrong, needed, error) <= 0.02 < binom.cdf(wrong, needed - 1, error)


def sorted_risks(wrong):
    """The three numbers for predictions in falling order of their scores."""
    bad, number = np.cumsum(wrong), np.arange(1, len(wrong) + 1)
    return (bad / number).mean(), (bad / len(wrong)).mean(), max([0, *number[bad <= 0.3 * number]]) / len(wrong)


def test_areas_and_coverage_are_those_of_sorted_samples():
    place, wrong = np.arange(40), np.random.default_rng(1).uniform(size=40) < np.linspace(0.8, 0, 40)
    counts = [torch.tensor(np.bincount(place[wrong == x], minlength=40)) for x in (False, True)]
    found = [aurc(*counts), augrc(*counts), coverage_at_error(*counts, 0.3)]
    np.testing.assert_allclose(torch.stack(found).numpy(), sorted_risks(wrong[::-1]), rtol=1e-12)


def test_ties_are_taken_in_every_order_alike():
    right, wrong = torch.tensor([1, 3, 1]), torch.tensor([1, 2, 0])
    orders = [[0, *middle, *low] for middle in {*permutations([0, 0, 0, 1, 1])} for low in ([0, 1], [1, 0])]
    means = np.mean([sorted_risks(np.array(order))[:2] for order in orders], 0)
    np.testing.assert_allclose([aurc(right, wrong), augrc(right, wrong)], means, rtol=1e-12)
    both = torch.stack([right, 2 * right]), torch.stack([wrong, wrong])
    torch.testing.assert_close(aurc(*both)[0], aurc(right, wrong))
    assert aurc(right * 0, wrong * 0).isnan()
