"""Tails at the ends of their domain, their broadcasting, and their derivative."""

import pytest
import torch
from mpmath import mp

from tests import reference
from tests.functional.cases import INF, NAN, random_logits
from torch_boc.functional import bag_of_coins, binomial_log_tail, binomial_tail, log_p_value

f64 = torch.float64
TRIALS = (1, 2, 100, 1_000_000)


@pytest.mark.parametrize("odds", [0.0, 1e-12, 1.0, 1e12, INF])
@pytest.mark.parametrize("trials", TRIALS)
def test_no_wins_are_certain_and_too_many_impossible(trials, odds):
    wins = torch.tensor([-INF, -5.0, 0.0, -0.5, trials + 0.5, trials + 1, INF], dtype=f64)
    log_tail = binomial_log_tail(wins, trials, torch.tensor(odds, dtype=f64))
    assert log_tail.tolist() == [0, 0, 0, 0, -INF, -INF, -INF]


@pytest.mark.parametrize("trials", TRIALS)
def test_certain_success_and_certain_failure(trials):
    wins = torch.tensor([0, 1, (trials + 1) // 2, trials, trials + 1])
    assert binomial_log_tail(wins, trials, torch.tensor(0.0)).tolist() == [0, 0, 0, 0, -INF]
    assert binomial_log_tail(wins, trials, torch.tensor(INF)).tolist() == [0, -INF, -INF, -INF, -INF]
    assert binomial_tail(wins, trials, torch.tensor(1.0)).tolist() == [1, 1, 1, 1, 0]
    assert binomial_tail(wins, trials, torch.tensor(0.0)).tolist() == [1, 0, 0, 0, 0]


@pytest.mark.parametrize(("wins", "odds"), [(NAN, 1.0), (3.0, NAN), (NAN, NAN), (NAN, 0.0), (NAN, INF)])
def test_nan_stays_in_its_place(wins, odds):
    log_tail = binomial_log_tail(torch.tensor([2.0, wins, 3.0]), 5, torch.tensor([1.0, odds, 1.0]))
    assert log_tail.isnan().tolist() == [False, True, False]


def test_the_counts_between_two_whole_numbers_are_the_upper_one():
    wins = torch.tensor([2.1, 2.5, 2.9, 3.0], dtype=f64)
    log_tail = binomial_log_tail(wins, 7, torch.tensor(0.4))
    assert len(set(log_tail.tolist())) == 1
    torch.testing.assert_close(log_tail[0].exp(), binomial_tail(torch.tensor(3), 7, torch.tensor(1 / 1.4, dtype=f64)))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("odds_dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_any_dtype_is_computed_in_float64(dtype, odds_dtype):
    log_tail = binomial_log_tail(torch.tensor([3, 5], dtype=dtype), 7, torch.tensor([0.5, 2.0], dtype=odds_dtype))
    expected = binomial_log_tail(torch.tensor([3, 5]), 7, torch.tensor([0.5, 2.0], dtype=f64))
    assert log_tail.dtype == f64
    torch.testing.assert_close(log_tail, expected, rtol=0, atol=0)


@pytest.mark.parametrize(("left", "right"), [((), (3,)), ((4, 1), (3,)), ((2, 1, 3), (4, 1)), ((0,), ()), ((3,), ())])
def test_wins_and_odds_broadcast(left, right):
    wins = torch.arange(1, 1 + torch.Size(left).numel(), dtype=f64).reshape(left)
    odds = random_logits(*right).exp()
    log_tail = binomial_log_tail(wins, 30, odds)
    pairs = torch.broadcast_tensors(wins, odds)
    expected = [binomial_log_tail(w, 30, o).item() for w, o in zip(*(x.flatten() for x in pairs), strict=True)]
    assert log_tail.shape == torch.broadcast_shapes(left, right)
    torch.testing.assert_close(log_tail.flatten(), torch.tensor(expected, dtype=f64), rtol=1e-14, atol=0)


@pytest.mark.parametrize("odds", [1e12, 1e3, 2.0, 1.0, 0.5, 1e-3, 1e-12])
@pytest.mark.parametrize(
    ("wins", "trials"), [(1, 1), (1, 20), (10, 20), (19, 20), (20, 20), (60, 100), (5000, 10_000), (9990, 10_000)]
)
def test_the_derivative_in_the_odds(wins, trials, odds):
    r = torch.tensor(odds, dtype=f64, requires_grad=True)
    (slope,) = torch.autograd.grad(binomial_log_tail(torch.tensor(wins), trials, r), r)
    with mp.workdps(200):
        step = mp.mpf(odds) * mp.mpf(10) ** -40
        ends = [reference.binomial_log_tail(wins, trials, odds + sign * step, digits=200) for sign in (1, -1)]
        expected = float((ends[0] - ends[1]) / (2 * step))
    torch.testing.assert_close(slope.item(), expected, rtol=1e-9, atol=1e-300)


FLAT = [(wins, odds, 0.0) for wins in (-3.0, 0.0, 8.0) for odds in (0.0, 1.0, 1e9)]
SMALL = [(wins, odds, slope) for wins, slope in ((7, -7.0), (6, 0.0), (1, 0.0)) for odds in (0.0, 1e-310, 1e-300)]


@pytest.mark.parametrize(("wins", "odds", "slope"), [*FLAT, *SMALL])
def test_the_derivative_outside_of_the_range_and_at_odds_of_zero(wins, odds, slope):
    """There (1 + R)^-k for all wins, and 1 minus a power of R above the first for fewer."""
    r = torch.tensor(odds, dtype=f64, requires_grad=True)
    (actual,) = torch.autograd.grad(binomial_log_tail(torch.tensor(wins), 7, r), r)
    torch.testing.assert_close(actual.item(), slope, rtol=1e-10, atol=1e-250)


@pytest.mark.parametrize("trials", [1, 100])
@pytest.mark.parametrize("row", [[200.0, 0.0, 0.0], [150.0, -INF, 2.0], [0.0, -INF, -INF], [300.0, 0.0]])
def test_a_row_whose_odds_underflow_has_a_gradient(row, trials):
    """A confident float32 row: its odds are 0, its p-value is 1, and it pulls at nothing."""
    z = torch.tensor([row, row], requires_grad=True)
    log_p_value(bag_of_coins(z), trials).sum().backward()
    assert (z.grad == 0).all()
