"""What cannot be probed is refused with a message that says what was expected and what came."""

import numpy as np
import pytest
import torch

from tests.functional.cases import SCORES, random_logits
from torch_boc.functional import (
    bag_of_coins,
    binomial_log_tail,
    binomial_tail,
    compute_scores,
    dominance_bounds,
    expected_wins,
    flip_coins,
    forced_gap,
    free_gap,
    log_p_value,
    p_value,
    sample_wins,
    scores,
    structural_score,
)

LOGITS = random_logits(3, 4)
COINS = bag_of_coins(LOGITS)
HALF = torch.tensor(0.5)
TAKES_LOGITS = {"bag_of_coins": bag_of_coins, "flip_coins": flip_coins, "compute_scores": compute_scores, **scores}
TAKES_TRIALS = {
    "expected_wins": lambda trials: expected_wins(COINS, trials),
    "sample_wins": lambda trials: sample_wins(COINS, trials),
    "flip_coins": lambda trials: flip_coins(LOGITS, trials),
    "binomial_tail": lambda trials: binomial_tail(HALF, trials, HALF),
    "binomial_log_tail": lambda trials: binomial_log_tail(HALF, trials, HALF),
    "p_value": lambda trials: p_value(COINS, trials),
    "log_p_value": lambda trials: log_p_value(COINS, trials),
    "p_value of wins": lambda trials: p_value(COINS, trials, wins=HALF),
    "structural_score": lambda trials: structural_score(COINS, trials),
    "compute_scores": lambda trials: compute_scores(LOGITS, trials=trials),
    **{name: lambda trials, name=name: scores[name](LOGITS, trials=trials) for name in SCORES},
}
over_logits = pytest.mark.parametrize("function", TAKES_LOGITS.values(), ids=TAKES_LOGITS.keys())
over_trials = pytest.mark.parametrize("function", TAKES_TRIALS.values(), ids=TAKES_TRIALS.keys())


@over_logits
@pytest.mark.parametrize("logits", [[[1.0, 2.0]], np.ones((2, 3)), None])
def test_logits_must_be_a_tensor(function, logits):
    with pytest.raises(TypeError, match=f"expected logits as a torch.Tensor, got {type(logits).__name__}"):
        function(logits)


@over_logits
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64])
def test_logits_must_be_floating_point(function, dtype):
    with pytest.raises(TypeError, match=rf"expected floating-point logits, got shape \(2, 3\), dtype {dtype}"):
        function(torch.ones(2, 3, dtype=dtype))


@over_logits
def test_logits_must_have_a_class_axis(function):
    with pytest.raises(ValueError, match="expected logits with a class axis, got a scalar"):
        function(torch.tensor(1.0))


@over_logits
@pytest.mark.parametrize("classes", [0, 1])
def test_one_class_is_not_enough(function, classes):
    with pytest.raises(ValueError, match=rf"at least 2 classes on dim=-?\d, got {classes} \(shape \(3, {classes}\)"):
        function(torch.ones(3, classes))


@over_logits
@pytest.mark.parametrize("dim", [2, -3, 7])
def test_dim_must_exist(function, dim):
    with pytest.raises(ValueError, match=rf"expected dim in \[-2, 2\), got {dim}"):
        function(torch.ones(3, 4), dim=dim)


@over_logits
def test_dim_decides_which_axis_counts_the_classes(function):
    with pytest.raises(ValueError, match="at least 2 classes on dim=0, got 1"):
        function(torch.ones(1, 4), dim=0)


@over_trials
@pytest.mark.parametrize("trials", [0, -1, -(10**9)])
def test_trials_must_be_positive(function, trials):
    with pytest.raises(ValueError, match=f"expected trials as a positive integer, got {trials}"):
        function(trials)


@over_trials
@pytest.mark.parametrize("trials", [10**6 + 1, 10**8, 2**70])
def test_trials_have_a_limit(function, trials):
    """A hundred million of them took 5.8 GB."""
    with pytest.raises(ValueError, match=f"expected at most 1,000,000 trials, got {trials:,}"):
        function(trials)


@over_trials
@pytest.mark.parametrize("trials", [1.5, 100.0, "100", None, True, torch.tensor(2.5)])
def test_trials_must_be_an_integer(function, trials):
    with pytest.raises(TypeError, match="expected trials as a positive integer, got"):
        function(trials)


@over_trials
def test_integers_of_other_libraries_are_integers(function):
    results = []
    for trials in (np.int64(3), 3):
        torch.manual_seed(0)
        results.append(function(trials))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


@pytest.mark.parametrize("function", [dominance_bounds, forced_gap, lambda odds, c: free_gap(odds, odds, c)])
@pytest.mark.parametrize("classes", [1, 0, -4])
def test_bounds_need_two_classes(function, classes):
    with pytest.raises(ValueError, match=f"expected num_classes of at least 2, got {classes}"):
        function(HALF, classes)


def test_an_unknown_score_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"expected a score among msp, log_odds, .*structural_score, got 'mps'"):
        compute_scores(LOGITS, ["msp", "mps"])


def test_the_registry_is_read_only():
    with pytest.raises(TypeError):
        scores["mine"] = scores["msp"]


def test_a_dtensor_is_refused_with_the_remedy():
    import torch.distributed as dist
    from torch.distributed.tensor import distribute_tensor, init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        logits = distribute_tensor(torch.eye(3), init_device_mesh("cpu", (1,)))
        with pytest.raises(TypeError, match=r"full_tensor\(\)"):
            bag_of_coins(logits)
    finally:
        dist.destroy_process_group()
