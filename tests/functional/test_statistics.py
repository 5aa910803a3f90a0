"""Draws at fixed seeds against the laws that they should follow, with a test that would notice another law."""

import numpy as np
import pytest
import scipy.stats
import torch

from torch_boc.functional import bag_of_coins, flip_coins, p_value, sample_wins

SAMPLES = 20_000
ROWS = {
    "two classes": [0.3, 0.0],
    "a close race": [0.1, 0.0, 0.05, -0.2],
    "one rival and many that lose": [1.0, 0.9, -4.0, -5.0, -6.0],
    "confident": [4.0, 0.0, 1.0, -1.0, 0.5, 0.2, -2.0],
}


def many(row):
    return torch.tensor(row, dtype=torch.float64).expand(SAMPLES, len(row))


def draw(kind, row, trials, seed):
    generator = torch.Generator().manual_seed(seed)
    if kind == "flip_coins":
        return flip_coins(many(row), trials, generator=generator)
    return sample_wins(bag_of_coins(many(row)), trials, generator=generator)


def counts(wins, trials):
    return np.bincount(wins.long().numpy(), minlength=trials + 1)


def goodness_of_fit(observed, chance):
    """The p-value of a chi^2 test that counts of 0..k wins come from Binomial(k, chance); rare counts are merged."""
    trials = len(observed) - 1
    expected = scipy.stats.binom.pmf(np.arange(trials + 1), trials, chance) * observed.sum()
    common = expected >= 10
    pairs = [np.append(x[common], x[~common].sum()) for x in (observed, expected)]
    keep = pairs[1] > 0
    return scipy.stats.chisquare(pairs[0][keep], pairs[1][keep] * observed.sum() / pairs[1][keep].sum()).pvalue


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("trials", [1, 20, 100])
@pytest.mark.parametrize("kind", ["sample_wins", "flip_coins"])
def test_wins_are_binomial_with_the_dominance(kind, trials, row):
    """Independent flips with one and the same chance: not Poisson-binomial, as the paper has it."""
    dominance = bag_of_coins(torch.tensor(row, dtype=torch.float64)).dominance.item()
    assert goodness_of_fit(counts(draw(kind, row, trials, seed=1), trials), dominance) > 1e-3


@pytest.mark.parametrize("trials", [5, 20, 100, 200])
@pytest.mark.parametrize("margin", [0.0, 0.2, 1.0, 3.0, 8.0])
def test_the_p_value_is_super_uniform_for_two_classes(margin, trials):
    """There the null hypothesis holds. For each threshold that the p-value can take, exactly: Pr{p <= a} <= a."""
    coins = bag_of_coins(torch.tensor([margin, 0.0], dtype=torch.float64))
    wins = np.arange(trials + 1)
    p_values = p_value(coins, trials, wins=torch.from_numpy(wins)).numpy()
    masses = scipy.stats.binom.pmf(wins, trials, coins.dominance.item())
    for threshold in p_values:
        assert masses[p_values <= threshold].sum() <= threshold * (1 + 1e-9)


def test_three_classes_violate_the_null_hypothesis():
    """Why the paper's test is not one of fit: with three classes the null is false, and is rejected too often."""
    row = [0.5, 0.0, 0.0]
    drawn = p_value(bag_of_coins(many(row)), 100, wins=draw("sample_wins", row, 100, seed=4))
    assert (drawn <= 0.05).double().mean() > 0.5
