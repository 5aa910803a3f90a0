"""Extra memory is bounded whatever the batch: measured in live allocations, beyond the logits and their gradient."""

import pytest
import torch

from tests.dispatch import MemoryMeter
from tests.functional.cases import over_paths
from torch_boc.functional import bag_of_coins, binomial_log_tail, compute_scores, p_value, tempered_dominance
from torch_boc.kernels import use

MEGABYTE = 10**6
LIMIT = 128 * MEGABYTE
SHAPE = (256, 128256)


def large_logits(**options):
    """66 MB of a vocabulary's logits; their values do not matter."""
    return torch.linspace(-30, 30, SHAPE[1]).to(torch.bfloat16).expand(SHAPE).contiguous().requires_grad_(**options)


PASSES = {
    "bag_of_coins": lambda z: bag_of_coins(z).gap,
    "whole probe": lambda z: p_value(bag_of_coins(z)),
    "tempered": lambda z: tempered_dominance(z, 4.0),
    "all scores": lambda z: torch.stack(list(compute_scores(z).values())),
}
passes = pytest.mark.parametrize("function", PASSES.values(), ids=PASSES.keys())


@passes
def test_forward(function):
    z = large_logits(requires_grad=False)
    assert z.nbytes < 66 * MEGABYTE
    with MemoryMeter() as meter:
        value = function(z)
    assert meter.peak < LIMIT
    assert meter.live <= value.nbytes


@passes
@pytest.mark.parametrize("path", ["auto", "torch"])
def test_forward_and_backward(function, path):
    """Between the two it keeps the logits and a few numbers per row, nothing of the size of the logits."""
    z = large_logits()
    with MemoryMeter() as meter, use(path):
        value = function(z)
        assert meter.live < MEGABYTE
        value.sum().backward()
    assert meter.live - z.grad.nbytes < MEGABYTE
    gradients = 2 if function is PASSES["all scores"] else 1  # of the sums and of the extras, which autograd adds up
    assert meter.peak - gradients * z.grad.nbytes < LIMIT


def test_tails_need_no_table_over_samples_and_trials():
    samples, trials = 2000, 10_000
    odds = torch.linspace(0.01, 2, samples, dtype=torch.float64)
    with MemoryMeter() as meter:
        binomial_log_tail(torch.tensor(trials // 2), trials, odds)
    assert meter.peak < 0.05 * samples * trials * 8


@over_paths
@pytest.mark.parametrize("function", [bag_of_coins, lambda z: (p_value(bag_of_coins(z)),)], ids=["coins", "p-values"])
def test_extra_memory_is_less_than_a_number_per_row(function, path):
    """Beyond the results, which are there twice while pieces are joined: of few classes, these are the most of it."""
    extra, counts = [], (2_000_000, 6_000_000)
    for rows in counts:
        z = torch.linspace(-3, 3, 4).expand(rows, 4)
        with use(path), MemoryMeter() as meter:
            results = function(z)
        coins = 8 + 4 * 4  # bytes of a row: prediction, odds, loss, concentration and free gap
        wide = [x for x in results if x is not None and x.dtype == torch.float64]
        extra.append(meter.peak - 2 * rows * coins - 2 * sum(x.nbytes for x in wide))
    assert extra[1] - extra[0] < 8 * (counts[1] - counts[0])
