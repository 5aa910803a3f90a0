"""What cannot be probed is refused with a message that says what was expected and what came."""

import math

import numpy as np
import pytest
import torch

from tests.functional.cases import random_logits
from torch_boc import BoCMetric
from torch_boc.functional import (
    bag_of_coins,
    bag_of_dice,
    binomial_tail,
    boc_summary,
    choose_temperature,
    compute_scores,
    dominance_bounds,
    expected_wins,
    flip_coins,
    forced_gap,
    fpr_at_tpr,
    log_p_value,
    sample_columns,
    sample_stats,
    sample_wins,
    scores,
    tempered_dominance,
)
from torch_boc.functional.checks import as_binary, as_indices

LOGITS, HALF, NONE = random_logits(3, 4), torch.tensor(0.5), torch.zeros(0)
COINS = bag_of_coins(LOGITS)
TAKES_LOGITS = [bag_of_coins, flip_coins, compute_scores, sample_stats, sample_columns, boc_summary, scores["msp"]]
TAKES_TRIALS = {
    "expected_wins": lambda trials: expected_wins(COINS, trials),
    "sample_wins": lambda trials: sample_wins(COINS, trials),
    "flip_coins": lambda trials: flip_coins(LOGITS, trials),
    "binomial_tail": lambda trials: binomial_tail(HALF, trials, HALF),
    "log_p_value": lambda trials: log_p_value(COINS, trials),
    "log_p_value of wins": lambda trials: log_p_value(COINS, trials, wins=HALF),
    "compute_scores": lambda trials: compute_scores(LOGITS, ["log_p_value"], trials=trials),
    "gather": lambda trials: sample_stats(LOGITS, trials=trials).trials,
    "sample_columns": lambda trials: sample_columns(LOGITS, trials=trials, columns=["p_value"]),
}


@pytest.mark.parametrize("function", TAKES_LOGITS)
def test_what_are_no_logits(function):
    for logits, kind in (([[1.0, 2.0]], "list"), (np.ones((2, 3)), "ndarray"), (None, "NoneType")):
        with pytest.raises(TypeError, match=f"expected logits as a torch.Tensor, got {kind}; use torch.as_tensor"):
            function(logits)
    with pytest.raises(TypeError, match=r"expected floating-point logits, got shape \(2, 3\), dtype torch.int64"):
        function(torch.ones(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="expected logits with a class axis, got a scalar"):
        function(torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"at least 2 classes on dim=-?\d, got 1 \(shape \(3, 1\)"):
        function(torch.ones(3, 1))
    with pytest.raises(ValueError, match=r"expected dim in \[-2, 2\), got 2"):
        function(torch.ones(3, 4), dim=2)
    with pytest.raises(ValueError, match="at least 2 classes on dim=0, got 1"):
        function(torch.ones(1, 4), dim=0)


@pytest.mark.parametrize("function", TAKES_TRIALS.values(), ids=TAKES_TRIALS.keys())
def test_trials_are_a_positive_integer_up_to_a_million(function):
    for trials in (0, -1, 10**6 + 1, 2**70):
        with pytest.raises(ValueError, match="expected trials as a positive integer up to 1,000,000, got"):
            function(trials)
    for trials in (1.5, "100", None, True):
        with pytest.raises(TypeError, match="expected trials as a positive integer, got"):
            function(trials)
    results = []
    for trials in (np.int64(3), 3):
        torch.manual_seed(0)
        results.append(function(trials))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


WRONG = {
    "forced gap": (lambda: forced_gap(HALF, 0), "expected num_classes of at least 2, got 0"),
    "bounds": (lambda: dominance_bounds(HALF, 1), "expected num_classes of at least 2, got 1"),
    "score": (lambda: compute_scores(LOGITS, ["msp", "mps"]), "scores as a list .* among msp, .*, 'mps'"),
    "one score": (lambda: compute_scores(LOGITS, "msp"), "expected scores as a list .*, got 'msp'"),
    "temperature": (lambda: tempered_dominance(LOGITS, 0.0), "expected a temperature above 0, got 0.0"),
    "infinite": (lambda: tempered_dominance(LOGITS, math.inf), "expected a temperature above 0, got inf"),
    "two temperatures": (lambda: tempered_dominance(LOGITS, torch.ones(2)), r"expected one temperature, .*\(2,\)"),
    "dominance": (lambda: choose_temperature(LOGITS, dominance=0.5), "expected a dominance between 0.5 and 1"),
    "no sample": (lambda: choose_temperature(LOGITS[:0]), r"expected logits of at least one sample, got .*\(0, 4\)"),
    "extras": (lambda: sample_stats(LOGITS, extras=["gem"]), "expected extras as True, False or a list of names among"),
    "no extras": (
        lambda: scores["gen"].number(sample_stats(LOGITS)),
        "expected statistics with the top logits and the sums",
    ),
    "rate": (lambda: fpr_at_tpr(LOGITS[0], LOGITS[1], 1.01), "tpr in"),
    "no rate": (lambda: fpr_at_tpr(LOGITS[0], LOGITS[1], 0.0), "tpr in"),
    "dice": (lambda: bag_of_dice(LOGITS, [2, 0]), "expected faces as a positive integer"),
    "no dice": (lambda: bag_of_dice(LOGITS, []), "expected faces as a positive integer"),
    "whole numbers": (lambda: as_binary(torch.tensor([1, 0])), "expected single logits as a floating-point tensor of"),
    "no single logit": (lambda: as_binary(torch.tensor(1.0)), "expected single logits as a floating-point tensor of"),
    "a list": (lambda: as_binary([1.0]), "expected single logits as a floating-point tensor of .*, got list"),
    "two logits": (lambda: as_binary(LOGITS), "expected a single logit of each sample, as binary=True says, got"),
    "another axis": (lambda: as_binary(LOGITS[:, :1], dim=2), "expected a single logit of each sample"),
    "class": (lambda: bag_of_coins(LOGITS, index=torch.tensor([0])), r"expected index of shape \(3,\)"),
    "target": (lambda: sample_stats(LOGITS, torch.zeros(2, dtype=torch.int64)), r"expected target of shape \(3,\)"),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_the_registry_is_read_only_and_names_may_be_an_iterator():
    with pytest.raises(TypeError):
        scores["mine"] = scores["msp"]
    assert list(compute_scores(LOGITS, iter(["gap", "msp"]))) == ["gap", "msp"]
    assert len({score.symbol for score in scores.values()}) == len(scores)


def test_a_dtensor_is_refused_with_the_remedy():
    import torch.distributed as dist
    from torch.distributed.tensor import distribute_tensor, init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(TypeError, match=r"full_tensor\(\)"):
            bag_of_coins(distribute_tensor(torch.eye(3), init_device_mesh("cpu", (1,))))
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint32, torch.uint64]
)
def test_targets_of_every_integer_dtype_mean_the_same(dtype):
    """A class is its number, and -100 is never 156, which it is in uint8."""
    logits = random_logits(120, 300)
    target = logits.argmax(-1) % min(256, torch.iinfo(dtype).max + 1)
    target[::3] = min(156, torch.iinfo(dtype).max)
    expected = boc_summary(logits, target, ignore_index=-100)
    torch.testing.assert_close(boc_summary(logits, target.to(dtype), ignore_index=-100), expected, rtol=0, atol=0)
    assert expected["samples"] == 120
    if dtype.is_signed:
        target[:40] = -100
        assert boc_summary(logits, target.to(dtype), ignore_index=-100)["samples"] == 80


def test_numbers_that_int64_does_not_hold_are_no_class_and_not_ignored():
    target = torch.tensor([0, 2, -100, -1]).to(torch.uint64)
    assert as_indices(target).tolist() == [0, 2, 2**63 - 1, 2**63 - 1]
    metric = BoCMetric(ignore_index=-100)
    metric.update(random_logits(4, 3), target)
    with pytest.raises(ValueError, match="2 "):
        metric.compute()
