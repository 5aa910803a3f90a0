"""The tails of the kernels against the path in torch and sums in 40 digits. Run by `test_kernels.py`."""

import pytest
import torch

from tests import reference
from tests.core.test_tails import assert_accurate, telling_wins
from tests.functional.cases import INF, NAN
from tests.kernels.cases import DEVICE
from torch_boc.core import tails
from torch_boc.kernels.tails import log_tail

f64 = torch.float64
TRIALS = (1, 2, 3, 100, 1000, 1001, 1_000_000)
ODDS = (1e-30, 1e-12, 1e-6, 1e-3, 1 / 9, 0.3, 0.9, 1.0, 2.5, 9.0, 999.0, 1e6, 1e12, 1e30)
over_trials = pytest.mark.parametrize("trials", TRIALS)


def tensor(values):
    return torch.tensor(values, dtype=f64, device=DEVICE)


def pairs(wins, odds):
    """Every count with all odds, as two tensors of one shape."""
    return [x.contiguous() for x in torch.broadcast_tensors(tensor(wins)[:, None], tensor(odds))]


def assert_as_in_torch(wins, trials, odds):
    """Values to 1e-11 of the tail or of its logarithm, slopes to 1e-9 of themselves, where torch does not underflow."""
    value, slope = log_tail(wins, trials, odds)
    expected, expected_slope = tails.log_tail_and_slope(wins.ceil(), trials, odds)
    torch.testing.assert_close(value, expected, rtol=1e-11, atol=1e-11, equal_nan=True)
    torch.testing.assert_close(slope, expected_slope, rtol=1e-9, atol=1e-280, equal_nan=True)


@over_trials
def test_agrees_with_the_reference(trials):
    """Every count of few trials, the telling ones of many; one launch for all."""
    cases = [(w, x) for x in ODDS for w in (range(1, trials + 1) if trials <= 3 else telling_wins(trials, x))]
    cases = cases if trials < 1_000_000 else cases[::3]
    wins, odds = zip(*cases, strict=True)
    expected = [reference.binomial_log_tail(w, trials, x, digits=30) for w, x in cases]
    assert_accurate(log_tail(tensor(wins), trials, tensor(odds))[0], expected)


@pytest.mark.parametrize("odds", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("trials", [7, 8, 17])
def test_few_trials_are_exact_to_the_last_digits(trials, odds):
    """Where each constant of Stirling's formula is used, and the series where it is the least exact."""
    wins = range(1, trials + 1)
    exact = tensor([float(reference.binomial_log_tail(w, trials, odds)) for w in wins])
    actual = log_tail(tensor(wins), trials, torch.full_like(exact, odds))[0]
    torch.testing.assert_close(actual, exact, rtol=2e-15, atol=1e-14)


@pytest.mark.parametrize("odds", [1e-3, 1e-6, 1e-12, 1e-30])
@pytest.mark.parametrize("trials", [1, 20, 100, 10_000])
def test_the_logarithm_keeps_what_is_missing_to_one(trials, odds):
    wins = [max(1, int(trials / (1 + odds)) - step) for step in range(5)]
    expected = [reference.binomial_log_tail(w, trials, odds, digits=200) for w in wins]
    actual = log_tail(tensor(wins), trials, tensor([odds] * 5))[0]
    relative = [abs(a - e) / abs(e) for a, e in zip(actual.tolist(), expected, strict=True)]
    assert max(relative) <= 1e-10


@pytest.mark.parametrize("trials", [1, 2, 3, 7, 8, 17, 100, 1001])
def test_every_count_is_as_in_torch(trials):
    wins = sorted({*range(-1, min(trials, 20) + 3), *range(max(0, trials - 20), trials + 3), trials // 2})
    wins, odds = pairs(wins, (*ODDS, 1e-310, 1e300))
    assert_as_in_torch(wins, trials, odds)


@over_trials
def test_the_ends_are_as_in_torch(trials):
    wins = [-INF, -5.0, -0.5, 0.0, 0.5, 1.0, trials - 0.5, trials, trials + 0.5, trials + 1.0, INF, NAN]
    odds = [0.0, -0.0, 1e-310, 1e-300, 1.0, 1e300, INF, NAN, -1e-300, -1.0, -INF]
    wins, odds = pairs(wins, odds)
    assert_as_in_torch(wins, trials, odds)


@over_trials
def test_the_slope_of_a_certain_failure_is_its_limit(trials):
    slope = log_tail(tensor([0, 1, trials, trials + 1]), trials, tensor([INF] * 4))[1]
    assert slope.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("odds", [0.01, 0.7, 1.0, 30.0])
@pytest.mark.parametrize("trials", [1, 2, 20, 101])
def test_a_tail_and_its_complement_are_one(trials, odds):
    """Pr{X >= w} + Pr{k - X >= k - w + 1} = 1, and k - X has the inverse odds."""
    wins = tensor(range(trials + 2))
    tail, other = (
        log_tail(w, trials, torch.full_like(w, x))[0].exp() for w, x in ((wins, odds), (trials + 1 - wins, 1 / odds))
    )
    torch.testing.assert_close(tail + other, torch.ones_like(wins), rtol=1e-12, atol=0)


@pytest.mark.parametrize("trials", [1, 3, 100, 1001])
def test_more_wins_and_larger_odds_are_less_likely(trials):
    wins, odds = pairs(sorted({*range(0, trials + 2, max(1, trials // 25)), trials}), ODDS)
    value, slope = log_tail(wins, trials, odds)
    assert (value.diff(dim=0).nan_to_num(0.0) <= 0).all()
    assert (value.diff(dim=1).nan_to_num(0.0) <= 0).all()
    assert (slope <= 0).all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bfloat16])
def test_any_dtype_is_computed_in_float64(dtype):
    wins, odds = tensor([3, 5]), tensor([0.5, 2.0])
    for actual, expected in zip(log_tail(wins.to(dtype), 7, odds.float()), log_tail(wins, 7, odds), strict=True):
        assert actual.dtype == f64
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


CUTS = {
    "none": lambda x: x[:0],
    "one": lambda x: x[5],
    "more than a program": lambda x: x[:129],
    "every other": lambda x: x[::2],
    "the same": lambda x: x[7].expand(3, 2),
    "transposed": lambda x: x.unflatten(0, (20, 15)).T,
    "three axes": lambda x: x[:12].unflatten(0, (2, 3, 2)),
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
def test_any_shape_and_strides(cut):
    odds, wins = torch.logspace(-3, 3, 300, dtype=f64, device=DEVICE), tensor(range(300)) % 33 - 1
    whole = log_tail(wins, 31, odds)
    for value, expected in zip(log_tail(cut(wins), 31, cut(odds)), whole, strict=True):
        assert value.is_contiguous()
        torch.testing.assert_close(value, cut(expected), rtol=0, atol=0)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"one shape on one device, got \(3,\) on \w+.* and \(\) on"):
        log_tail(tensor([1, 2, 3]), 5, tensor(1.0))
