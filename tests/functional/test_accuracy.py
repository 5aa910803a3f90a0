"""Agreement with the definitions in 50 digits and more: every class count, every scale, gaps down to 1e-25."""

import functools

import pytest
import torch
from mpmath import mp

from tests import reference
from tests.functional.cases import confident_logits, random_logits, relative_error
from torch_boc.functional import bag_of_coins

CLASSES = (2, 3, 4, 10, 100, 1000, 50257)
ROWS = {1000: 3, 50257: 1}
LIMIT = {torch.float64: 1e-12, torch.float32: 5e-6}
# Below, the dtype runs out of exponents; of float64, its square does.
SMALLEST = {torch.float64: 1e-150, torch.float32: 1e-30}
FIELDS = ("odds", "loss", "gap", "confidence", "dominance")


@functools.cache
def scaled_rows(classes, scale):
    logits = random_logits(ROWS.get(classes, 12), classes, scale=scale, dtype=torch.float32, seed=classes)
    return logits, [reference.probe(row) for row in logits.tolist()]


@functools.cache
def confident_rows(classes, odds):
    logits = confident_logits(classes, odds, seed=classes).float()[None]
    return logits, [reference.probe(row) for row in logits.tolist()]


def assert_accurate(logits, probes, limit, smallest):
    coins = bag_of_coins(logits)
    for name in FIELDS:
        expected = [getattr(probe, name) for probe in probes]
        counts = torch.tensor([e == 0 or e > smallest for e in expected])
        assert counts.any(), name
        error = relative_error(getattr(coins, name), expected)[counts].max()
        assert error <= limit, f"{name}: relative error {error:.2g}"
    assert_concentration(coins.concentration, probes, logits.shape[-1], limit, smallest)
    assert coins.prediction.tolist() == [probe.prediction for probe in probes]


def assert_concentration(concentration, probes, classes, limit, smallest):
    """Near a flat row the concentration is a ratio of small differences: the error may grow as the terms over them."""
    for actual, probe in zip(concentration.tolist(), probes, strict=True):
        if probe.odds < smallest:
            continue
        with mp.workdps(60 + int(-2 * mp.log10(probe.odds))):
            room = (classes - 1) * (probe.upper - probe.lower)
            even = probe.odds - (classes - 1) * (1 - probe.lower)
            condition = float(even / room) if classes > 2 else 0.0
        error = abs(actual - float(probe.concentration))
        assert error <= limit * (1 + condition), f"concentration: error {error:.2g}, condition {condition:.2g}"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [0.01, 0.1, 1.0, 10.0, 50.0])
@pytest.mark.parametrize("classes", CLASSES)
def test_every_scale(classes, scale, dtype):
    logits, probes = scaled_rows(classes, scale)
    assert_accurate(logits.to(dtype), probes, LIMIT[dtype], SMALLEST[dtype])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("odds", [1e-3, 1e-7, 1e-12, 1e-20, 1e-25])
@pytest.mark.parametrize("classes", CLASSES)
def test_confident_rows_keep_their_gap(classes, odds, dtype):
    logits, probes = confident_rows(classes, odds)
    assert 0.01 * odds < probes[0].odds < 100 * odds
    assert_accurate(logits.to(dtype), probes, LIMIT[dtype], SMALLEST[dtype])


@pytest.mark.parametrize("scale", [0.01, 1.0, 50.0])
@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_logits_that_only_float64_holds(classes, scale):
    logits = random_logits(8, classes, scale=scale, seed=classes + 1)
    probes = [reference.probe(row) for row in logits.tolist()]
    assert_accurate(logits, probes, LIMIT[torch.float64], SMALLEST[torch.float64])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_half_precision_logits_are_taken_as_exact(classes, dtype):
    logits = random_logits(4, classes, scale=5.0, dtype=dtype, seed=classes)
    probes = [reference.probe(row) for row in logits.tolist()]
    assert_accurate(logits, probes, LIMIT[torch.float32], SMALLEST[torch.float32])


def test_the_ranking_of_confident_rows_survives_float32():
    logits = torch.stack([confident_logits(10, odds) for odds in torch.logspace(-25, -1, 97).tolist()]).float()
    gap = bag_of_coins(logits).gap
    assert (gap.diff() > 0).all()
