"""Nothing reads a value back, forward or backward: on a GPU each read would stall the queue."""

import pytest
import torch

from tests.dispatch import NoHostSync
from tests.functional.cases import random_logits
from torch_boc.core import blocks
from torch_boc.functional import (
    bag_of_coins,
    binomial_log_tail,
    binomial_tail,
    compute_scores,
    dominance_bounds,
    expected_wins,
    forced_gap,
    log_p_value,
    p_value,
    structural_score,
)


def of_coins(function):
    return lambda z: function(bag_of_coins(z), 200)


def first_odds(z):
    return bag_of_coins(z).odds.double()


FUNCTIONS = {
    "coins": lambda z: torch.stack(bag_of_coins(z)[1:]),
    "gap": lambda z: bag_of_coins(z).gap,
    "bounds": lambda z: torch.stack(dominance_bounds(first_odds(z), z.shape[-1])),
    "forced_gap": lambda z: forced_gap(first_odds(z), z.shape[-1]),
    "binomial_tail": lambda z: binomial_tail(torch.arange(len(z)), 1000, 1 / (1 + first_odds(z))),
    "binomial_log_tail": lambda z: binomial_log_tail(torch.arange(len(z)), 1000, first_odds(z)),
    "log_p_value": of_coins(log_p_value),
    "p_value": of_coins(p_value),
    "p_value of wins": lambda z: p_value(bag_of_coins(z), 9, wins=torch.arange(len(z))),
    "structural_score": of_coins(structural_score),
    "scores": lambda z: torch.stack(list(compute_scores(z).values())),
}
functions = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
shapes = pytest.mark.parametrize("shape", [(7, 2), (7, 10), (3, 4099)])


@functions
@shapes
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_forward_and_backward(function, shape, dtype):
    z = random_logits(*shape, dtype=dtype).requires_grad_()
    with NoHostSync():
        value = function(z)
        value.sum().backward()
    assert value.isfinite().all()
    assert z.grad.isfinite().all()


@functions
def test_forward_and_backward_in_blocks(function, monkeypatch):
    monkeypatch.setattr(blocks, "CPU_ELEMENTS_PER_THREAD", 7)
    z = random_logits(9, 5).requires_grad_()
    with NoHostSync():
        function(z).sum().backward()
    assert z.grad.isfinite().all()


def test_expected_wins():
    coins = bag_of_coins(random_logits(7, 5))
    with NoHostSync():
        wins = expected_wins(coins)
    assert wins.isfinite().all()
