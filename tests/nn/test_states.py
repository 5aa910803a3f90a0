"""A state whose numbers cannot belong to each other is refused when it is loaded."""

import copy

import pytest
import torch

from torch_boc import Acceptance, ConformalTest, DriftMonitor, RiskMonitor

LOADED = {
    "test": lambda: ConformalTest().calibrate(torch.randn(50, 3)),
    "groups": lambda: ConformalTest(groups="prediction").calibrate(torch.randn(50, 3)),
    "acceptance": lambda: Acceptance().calibrate(torch.randn(50, 3), torch.arange(50) % 3),
}


@pytest.mark.parametrize("make", LOADED.values(), ids=LOADED.keys())
@pytest.mark.parametrize("name", ["counts", "classes", "invalid"])
def test_counts_that_do_not_add_up(make, name):
    torch.manual_seed(0)
    whole = make()
    make().load_state_dict(whole.state_dict())
    for change in (-1000, 1) if name != "invalid" else (-1,):
        state = copy.deepcopy(whole.state_dict())
        state[name].view(-1)[-1] += change
        with pytest.raises(ValueError, match="counts add up, got a damaged one; make it again"):
            make().load_state_dict(state)


STREAM = {
    "seen": -1,
    "skipped": -1,
    "alarm_at": 500,
    "began": 10,
    "peak": -1.0,
    "evidence": 1e9,
    "log_shares": torch.nan,
}


@pytest.mark.parametrize("name", [*STREAM, "pool.counts"])
def test_a_stream_that_does_not_add_up(name):
    torch.manual_seed(0)
    monitor = DriftMonitor(ConformalTest().calibrate(torch.randn(50, 3)))
    monitor.update(torch.randn(20, 3))
    DriftMonitor(ConformalTest()).load_state_dict(monitor.state_dict())
    state = copy.deepcopy(monitor.state_dict())
    if name == "pool.counts":
        state["pool.counts"], state["pool.classes"] = (state[f"conformal_test.{x}"] // 2 for x in ("counts", "classes"))
        state["pool.classes"][0] += state["pool.counts"].sum() - state["pool.classes"].sum()
    else:
        state[name] = torch.full_like(state[name], STREAM[name])
    with pytest.raises(ValueError, match="counts add up, got a damaged one"):
        DriftMonitor(ConformalTest()).load_state_dict(state)


@pytest.mark.parametrize(("name", "value"), [("wrong", -1), ("wrong", 11), ("labels", 0), ("alarm_at", 11)])
def test_labels_that_do_not_add_up(name, value):
    monitor = RiskMonitor()
    monitor.update(torch.arange(10) > 2)
    RiskMonitor().load_state_dict(monitor.state_dict())
    with pytest.raises(ValueError, match="state of a RiskMonitor whose counts add up, got a damaged one"):
        RiskMonitor().load_state_dict({**monitor.state_dict(), name: torch.tensor(value)})
