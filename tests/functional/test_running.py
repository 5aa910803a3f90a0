"""Running means, and a threshold that few familiar sequences cross."""

import math

import pytest
import torch

from torch_boc.functional.running import extreme_mean, extreme_threshold, running_means


def test_means_are_those_of_the_windows():
    values = torch.randn(3, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = running_means(values, 6)
    expected = torch.stack([values[:, i : i + 6].mean(1) for i in range(15)], 1)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert running_means(values, 21).shape == (3, 0)
    torch.testing.assert_close(running_means(values, 1), values)
    assert running_means(values.float(), 4).dtype == torch.float64


def test_nan_spoils_its_windows_only():
    values = torch.tensor([1.0, math.nan, 3.0, 5.0, 9.0])
    assert running_means(values, 2).isnan().tolist() == [True, True, False, False]
    assert extreme_mean(values, 2, highest=True) == 7.0
    assert extreme_mean(values, 2, highest=False) == 4.0
    assert extreme_mean(values[:3], 2, highest=True) == -math.inf
    assert extreme_mean(values[:1], 2, highest=False) == math.inf


@pytest.mark.parametrize("highest", [True, False])
def test_the_threshold_is_an_order_statistic(highest):
    numbers = torch.randperm(99, generator=torch.Generator().manual_seed(0)).double()
    found = extreme_threshold(numbers, 0.05, highest=highest)
    assert (numbers > found if highest else numbers < found).sum() == 4  # k - 1 of them, and k / (n + 1) is alpha
    assert extreme_threshold(numbers[:19], 0.05, highest=True) == numbers[:19].max()


def test_too_few_sequences():
    with pytest.raises(ValueError, match=r"expected at least 19 sequences for alpha=0.05, got 18"):
        extreme_threshold(torch.arange(18.0), 0.05, highest=True)
    with pytest.raises(ValueError, match=r"expected at least 9 sequences for alpha=0.1, got 0"):
        extreme_threshold(torch.zeros(0), 0.1, highest=True)
    with pytest.raises(ValueError, match=r"expected at least 2 sequences that are as long as the window .*, got 1"):
        extreme_threshold(torch.tensor([1.0, *[-math.inf] * 38]), 0.05, highest=True)
    with pytest.raises(ValueError, match=r"expected alpha in \(0, 1\), got 0"):
        extreme_threshold(torch.arange(18.0), 0, highest=True)
