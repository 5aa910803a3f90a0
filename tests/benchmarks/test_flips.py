"""The effect of the number of coin flips, by the definitions of the paper."""

import numpy as np
import pytest
import torch

from benchmarks.paper.flips import flip_numbers
from tests import reference
from tests.data.cases import labelled, ood_logits
from torch_boc.evaluation import LogitSet
from torch_boc.functional import auroc, bag_of_coins, p_value


def test_sampled_wins_give_the_numbers_of_their_definition_but_for_chance():
    sets = LogitSet(*labelled(20_000), name="id"), LogitSet(ood_logits(20_000), name="ood")
    flips, numbers = flip_numbers(*sets, (50,)), np.random.default_rng(0)
    coins = [bag_of_coins(x.logits.double()) for x in sets]
    correct = (coins[0].prediction == sets[0].target).numpy()
    error, area = flips["deterministic", 50]
    assert error == pytest.approx(reference.calibration_error(coins[0].dominance.numpy(), correct))
    assert area == pytest.approx(auroc(*(1 - p_value(x, 50) for x in coins)).item(), abs=1e-3)
    drawn = [torch.from_numpy(numbers.binomial(50, x.dominance.numpy())).double() for x in coins]
    error, area = flips["Monte Carlo", 50]
    assert error == pytest.approx(reference.calibration_error(drawn[0].numpy() / 50, correct), abs=0.005)
    values = [1 - p_value(x, 50, wins=wins) for x, wins in zip(coins, drawn, strict=True)]
    assert area == pytest.approx(auroc(*values).item(), abs=0.012)
