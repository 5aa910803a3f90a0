"""Agreement with the definitions in 50 digits and more: every class count, every scale, gaps down to 1e-25."""

import functools

import pytest
import torch
from mpmath import mp

from tests import reference
from tests.functional.cases import confident_logits, over_paths, random_logits, relative_error
from torch_boc.functional import bag_of_coins, compute_scores
from torch_boc.kernels import use

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
    assert_concentration(coins, probes, min(limit, 2e-6), smallest)
    assert coins.prediction.tolist() == [probe.prediction for probe in probes]


def assert_concentration(coins, probes, limit, smallest):
    """To an absolute error, whatever the row: neither sure nor flat rows are taken from differences of large sums."""
    for value, free, probe in zip(coins.concentration.tolist(), coins.free_gap.tolist(), probes, strict=True):
        if probe.odds < smallest:
            continue
        error = abs(value - float(probe.concentration))
        assert error <= limit, f"concentration: error {error:.2g}"
        with mp.workdps(60 + int(-2 * mp.log10(probe.odds))):
            room, expected = float(probe.upper - probe.lower), float(probe.dominance - probe.lower)
        assert abs(free - expected) <= limit * room + 1e-37, f"free gap: {free} for {expected}"


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("scale", [0.01, 5.0, 50.0])
@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
def test_logits_of_other_dtypes_are_taken_as_exact(classes, scale, dtype):
    logits = random_logits(4, classes, scale=scale, dtype=dtype, seed=classes + 1)
    wide = dtype if dtype == torch.float64 else torch.float32
    assert_accurate(logits, [reference.probe(row) for row in logits.tolist()], LIMIT[wide], SMALLEST[wide])


@functools.cache
def flat_rows(classes, scale):
    """Logits that nearly tie, then some of them far below the others, and one with a class that always loses."""
    logits = random_logits(8, classes, scale=scale, dtype=torch.float32, seed=classes)
    logits[3, 0] -= 0.5
    logits[4, : classes // 3] -= 3.0
    logits[5, -1] = -torch.inf
    logits[6] = 0.0
    logits[6, 1] = scale
    logits[7] = -scale
    logits[7, 1] = 0.0
    return logits, [reference.probe(row) for row in logits.tolist()]


@over_paths
@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e-7, 1e-4, 1e-3, 0.1, 0.5])
@pytest.mark.parametrize("classes", [3, 4, 10, 300])
def test_the_concentration_of_nearly_tied_logits(classes, scale, path):
    """Of float32 logits, in which the sum of the odds is C - 1 up to rounding."""
    logits, probes = flat_rows(classes, scale)
    with use(path):
        assert_concentration(bag_of_coins(logits), probes, 2e-6, 0.0)
        assert_concentration(bag_of_coins(logits.double()), probes, 1e-12, 0.0)
    for name in ("log_p_value", "gap"):
        assert compute_scores(logits, [name])[name].isfinite().all()


@pytest.mark.parametrize("margin", [60.0, 68.0, 71.0, 79.5, 83.0, 86.5, 95.0, 150.0, 300.0])
@over_paths
def test_the_concentration_of_a_large_margin_and_its_gradient(margin, path):
    """The gradient of the sum of squares is 1e75 there, which float32 does not hold, and that of the logits is of 1."""
    row = torch.tensor([margin, 0.5, 0.0, -0.25, -3.0])
    keep_dtype, wide = row.clone().requires_grad_(), row.double().requires_grad_()
    with use(path):
        values = [bag_of_coins(z).concentration for z in (keep_dtype, wide)]
        (values[0] * 1000).backward()
        (values[1] * 1000).backward()
    assert abs(values[1].item() - float(reference.probe(row.tolist()).concentration)) <= 1e-12
    torch.testing.assert_close(values[0].double(), values[1], rtol=0, atol=1e-5)
    assert keep_dtype.grad.isfinite().all()
    torch.testing.assert_close(keep_dtype.grad.double(), wide.grad, rtol=1e-4, atol=0.05)


@pytest.mark.parametrize("scale", [1e-20, 1e-7, 1e-4, 0.01])
def test_the_gradient_of_nearly_tied_logits_is_that_of_float64(scale):
    logits = random_logits(6, 10, scale=scale, dtype=torch.float32)
    keep_dtype, wide = logits.clone().requires_grad_(), logits.double().requires_grad_()
    for z in (keep_dtype, wide):
        bag_of_coins(z).concentration.sum().backward()
    torch.testing.assert_close(keep_dtype.grad.double() * scale, wide.grad * scale, rtol=1e-4, atol=1e-5)
