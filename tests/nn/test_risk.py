"""The audit of accepted predictions: its level, how soon its alarm comes, its interval, and where its state goes."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

from benchmarks.guarantees import audit_study
from tests.nn.models import saved
from torch_boc import RiskMonitor
from torch_boc.functional.martingale import RATIOS, risk_evidence


def labels(number=900, error=0.03, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).random(number) >= error)


def test_the_evidence_is_the_mean_likelihood_ratio():
    bad = (~labels()).cumsum(0).numpy()
    number = np.arange(1, 901)
    expected = np.mean([binom.pmf(bad, number, 0.01 * r) / binom.pmf(bad, number, 0.01) for r in RATIOS], 0)
    np.testing.assert_allclose(RiskMonitor().update(labels()).exp().numpy(), expected, rtol=1e-8)


@pytest.mark.parametrize("error", [0.01, 0.3])  # ten times the second is no probability
@pytest.mark.parametrize("above", [True, False])
def test_the_wealth_stays_1_on_average_at_the_boundary(error, above):
    wrong = torch.arange(41)
    mean = (
        risk_evidence(torch.tensor(40), wrong, error, above=above).exp().numpy() * binom.pmf(wrong, 40, error)
    ).sum()
    assert mean == pytest.approx(1.0)


def test_false_alarms_delays_and_intervals_on_many_streams():
    """`benchmarks.guarantees` counts more of them; four standard errors of 300 streams are allowed."""
    rows = {row["case"]: row for row in audit_study(2000, 300)}
    for what in ("ever an alarm", "ever an interval without it"):
        assert rows[f"error 1 %: {what}"]["share"] <= 0.05 + 4 * (0.05 * 0.95 / 300) ** 0.5
    for error, prototype in {2: 730, 3: 247, 5: 90, 10: 26}.items():  # of as many streams, so both have that error
        row = rows[f"error {error} %: median number of labels"]
        assert abs(row["share"] - prototype) <= 4 * math.sqrt(2) * row["error"] + 1


@pytest.mark.parametrize("size", [1, 7, 900])
def test_batches_of_any_size_and_restarts_give_the_same(size):
    whole, other = RiskMonitor(), RiskMonitor()
    evidence = whole.update(labels())
    found = []
    for batch in labels().split(size):
        found.append(other.update(batch))
        other, before = RiskMonitor(), other
        other.load_state_dict(saved(before.state_dict()))
    torch.testing.assert_close(torch.cat(found), evidence)
    assert whole.alarm
    states = other.state_dict()
    assert all(torch.equal(x, states[name]) for name, x in whole.state_dict().items())
    assert evidence[whole.alarm_at - 1] >= -np.log(0.05) > evidence[: whole.alarm_at - 1].max()
    low, high = whole.interval()
    assert 0.01 < low < 0.03 < high < 0.06
    whole.update(labels(5000, 0.0))  # an alarm stays
    assert (whole.alarm_at, whole.labels, whole.wrong) == (other.alarm_at, 5900, (~labels()).sum())
    whole.reset()
    assert not whole.alarm
    assert whole.interval() == (0.0, 1.0)


def test_an_empty_batch_and_inference_mode_change_nothing():
    with torch.inference_mode():
        monitor = RiskMonitor()
    assert monitor.update(labels(0)).shape == (0,)
    monitor.update(labels())
    assert monitor.labels == 900


def test_it_compiles_in_one_graph():
    monitor, eager = RiskMonitor(), RiskMonitor()
    torch.compiler.reset()
    compiled = torch.compile(monitor.update, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(labels()), eager.update(labels()))
    assert monitor.alarm_at == eager.alarm_at
    torch.compiler.reset()
