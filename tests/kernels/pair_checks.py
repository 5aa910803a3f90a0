"""Tails whose continued fraction is in pairs of float32, as on cards with slow float64. Run by `test_kernels.py`."""

import pytest
import torch

from tests.kernels import tail_checks
from tests.kernels.cases import INTERPRETED
from torch_boc.core.tails import log_tail_and_slope
from torch_boc.kernels.tails import log_tail
from torch_boc.kernels.triton import cards

FEW_TRIALS = [1, 2, 3, 100, cards.MOST_TRIALS_IN_PAIRS]


@pytest.fixture(autouse=True)
def slow_float64(monkeypatch):
    """The interpreter rounds a fused multiply-add twice, so it gets one by float64, whose product is exact."""
    monkeypatch.setattr(cards, "has_slow_float64", lambda device: True)
    if INTERPRETED:
        from torch_boc.kernels.triton import pairs

        wide, narrow = pairs.tl.float64, pairs.tl.float32
        monkeypatch.setattr(pairs, "_fused", lambda a, b, c: (a.to(wide) * b.to(wide) + c.to(wide)).to(narrow))


def test_pairs_are_taken_up_to_some_trials():
    odds = torch.ones(3)
    assert cards.fraction_steps(odds, 100) == -18
    assert cards.fraction_steps(odds, cards.MOST_TRIALS_IN_PAIRS + 1) > 0


@pytest.mark.parametrize("trials", FEW_TRIALS)
def test_agrees_with_the_reference(trials):
    tail_checks.test_agrees_with_the_reference(trials)


@pytest.mark.parametrize("trials", FEW_TRIALS)
def test_the_error_beside_float64(trials):
    """A twentieth of what is allowed, 1e-10 of the tail or of its logarithm; the same for the slope."""
    generator = torch.Generator().manual_seed(trials)
    odds = 10 ** (24 * torch.rand(3000, generator=generator, dtype=torch.float64) - 12)
    likely = trials / (1 + odds) + 3 * torch.randn(3000, generator=generator, dtype=torch.float64)
    anywhere = torch.randint(0, trials + 1, (3000,), generator=generator)
    wins = torch.where(torch.arange(3000) % 2 == 0, likely.round().clamp(0, trials), anywhere)
    value, slope = (x.cpu() for x in log_tail(wins.to(tail_checks.DEVICE), trials, odds.to(tail_checks.DEVICE)))
    expected, expected_slope = log_tail_and_slope(wins, trials, odds)
    torch.testing.assert_close(value, expected, rtol=5e-12, atol=5e-12)
    torch.testing.assert_close(slope, expected_slope, rtol=1e-9, atol=1e-280)


def test_it_is_another_computation():
    """As a check of the tests above: the last bits differ from those in float64."""
    wins, odds = tail_checks.tensor([3.0, 60.0, 97.0]), tail_checks.tensor([20.0, 1.1, 0.06])
    in_pairs = log_tail(wins, 100, odds)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cards, "has_slow_float64", lambda device: False)
        assert not torch.equal(log_tail(wins, 100, odds)[0], in_pairs)
