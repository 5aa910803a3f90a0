"""Intervals from cells are those of the plain bootstrap of samples, and cover what they should."""

import math

import numpy as np
import pytest
import torch

from torch_boc.evaluation.calibration import CalibratedSamples, calibration_rows
from torch_boc.evaluation.detection import (
    STATISTICS,
    cell_statistics,
    rank_scores,
    score_cells,
    separate,
    separation_intervals,
)
from torch_boc.evaluation.intervals import CHUNK_ELEMENTS, bootstrap_interval, mean_interval, random_numbers, replicate
from torch_boc.functional.summary import calibration_error

REPLICATES = 800


def normal_scores(samples, shift, seed):
    return torch.from_numpy(np.random.default_rng(seed).normal(shift, 1, samples))


def resampled(values, numbers):
    return values[torch.from_numpy(numbers.integers(len(values), size=len(values)))]


def assert_same_interval(ours, plain):
    """Within a tenth of the width: some three standard errors of a quantile from so many replicates."""
    low, high = np.quantile(plain, [0.025, 0.975])
    assert ours == pytest.approx((low, high), abs=max(0.1 * (high - low), 1e-9))


@pytest.mark.parametrize("digits", [None, 1])
@pytest.mark.parametrize("shift", [0.5, 2.0])
def test_separation_agrees_with_the_plain_bootstrap(shift, digits):
    positive, negative = normal_scores(2000, shift, 0), normal_scores(1200, 0.0, 1)
    if digits is not None:  # ties
        positive, negative = positive.round(decimals=digits), negative.round(decimals=digits)
    pair = rank_scores(positive), rank_scores(negative)
    ours = separation_intervals(separate(*pair), *pair, REPLICATES, random_numbers(0, "cells"))
    numbers = random_numbers(0, "plain")
    plain = [
        separate(rank_scores(resampled(positive, numbers)), rank_scores(resampled(negative, numbers)))[:3]
        for _ in range(REPLICATES)
    ]
    for name, column in zip(STATISTICS, zip(*plain, strict=True), strict=True):
        if digits is not None and name == "fpr95":  # a few values only: a quantile may be either of two neighbours
            assert set(np.round(ours[name], 2)) <= set(np.round([x + d for x in column for d in (-0.01, 0, 0.01)], 2))
        else:
            assert_same_interval(ours[name], column)


def test_few_cells_have_nearly_the_statistics_of_their_samples():
    pair = rank_scores(normal_scores(4000, 1.0, 0)), rank_scores(normal_scores(3000, 0.0, 1))
    *counts, atoms = score_cells(*(x.values for x in pair), 64)
    found = cell_statistics(*(x.double().unsqueeze(0) for x in counts), atoms)[0]
    assert found.tolist() == pytest.approx(separate(*pair)[:3], abs=2e-3)


def test_calibration_agrees_with_the_plain_bootstrap():
    numbers = random_numbers(0, "data")
    confidence = torch.from_numpy(numbers.beta(5, 1, 2000))
    correct = torch.from_numpy(numbers.random(2000) < confidence.numpy() ** 1.5)
    nll = torch.from_numpy(numbers.exponential(size=2000))
    row, curve = calibration_rows(
        CalibratedSamples(confidence, correct, nll), 15, REPLICATES, random_numbers(0, "cells")
    )
    plain, last_bin = [], []
    for _ in range(REPLICATES):
        draw = resampled(torch.arange(2000), numbers)
        p, right = confidence[draw], correct[draw].double()
        plain.append((calibration_error(p, right, 15), nll[draw].mean().item(), (p - right).square().mean().item()))
        last_bin.append(right[p > 14 / 15].mean().item())
    error, *others = map(np.array, zip(*plain, strict=True))
    centred = error - error.mean() + row["ece"]
    for name, column in zip(("ece", "nll", "brier"), (centred, *others), strict=True):
        low = np.quantile(column, 0.025) if name == "ece" else row[f"{name}_low"]
        assert_same_interval((low, row[f"{name}_high"]), column)
    assert 0 < row["ece_low"] < np.quantile(centred, 0.025)  # without what chance adds
    assert_same_interval((curve[-1]["accuracy_low"], curve[-1]["accuracy_high"]), last_bin)


def test_replicates_are_drawn_in_pieces_and_have_the_mean_and_variance_of_the_multinomial():
    counts = torch.tensor([10, 0, 30, 60])
    largest = 0

    def shares(drawn):
        nonlocal largest
        largest = max(largest, drawn.numel())
        return drawn / 100

    observed, drawn = replicate(shares, [counts], 100_000, random_numbers(0, "pieces"))
    assert largest <= CHUNK_ELEMENTS
    assert drawn.shape == (100_000, 4)
    torch.testing.assert_close(observed, counts.double() / 100)
    torch.testing.assert_close(drawn.mean(0), observed, atol=1e-3, rtol=0)
    torch.testing.assert_close(drawn.var(0), observed * (1 - observed) / 100, atol=1e-4, rtol=0)


def test_the_interval_is_moved_to_the_estimate_and_stays_within_limits():
    drawn = torch.linspace(0, 1, 1001, dtype=torch.float64)
    assert bootstrap_interval(0.6, torch.tensor(0.5), drawn) == pytest.approx((0.125, 1.0))
    assert bootstrap_interval(-0.4, torch.tensor(0.5), drawn, (-1.0, 1.0)) == pytest.approx((-0.875, 0.075))


def test_no_interval_without_a_finite_estimate():
    drawn = torch.ones(10, dtype=torch.float64)
    assert all(map(math.isnan, bootstrap_interval(math.inf, torch.tensor(1.0), drawn)))
    assert all(map(math.isnan, bootstrap_interval(1.0, torch.tensor(1.0), drawn * math.nan)))
    with_infinity = torch.tensor([1.0, math.inf], dtype=torch.float64)
    assert all(map(math.isnan, mean_interval(with_infinity, 10, random_numbers(0), (0.0, math.inf))))
