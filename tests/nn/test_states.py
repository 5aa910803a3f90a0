"""What all states of held-out samples keep: batches, copies, files, devices and modes; damaged ones are rejected."""

import copy
import pickle

import pytest
import torch

from tests.dispatch import NoHostSync
from tests.functional.cases import random_logits
from tests.nn.models import saved
from torch_boc import Acceptance, ConformalTest, DriftMonitor, RiskMonitor
from torch_boc.functional import sample_stats

KINDS = {
    "plain": lambda: ConformalTest(),
    "negated": lambda: ConformalTest("-msp"),
    "by class": lambda: ConformalTest(groups="prediction"),
    "by confidence": lambda: ConformalTest("concentration", groups="confidence"),
    "acceptance": lambda: Acceptance(),
    "acceptance by class": lambda: Acceptance("prediction", resolution=256),
}
kinds = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
pytestmark = pytest.mark.filterwarnings("ignore:nothing can be flagged in", "ignore:nothing can be accepted")
LOGITS, NEW = random_logits(3000, 5, seed=1), random_logits(60, 5, seed=2)
TARGET = torch.multinomial((2 * LOGITS).softmax(-1), 1, generator=torch.Generator().manual_seed(1))[:, 0]


def add(state, logits, target):
    """A batch of held-out samples."""
    state.update(logits, target) if isinstance(state, Acceptance) else state.update(logits)


def decisions(state, logits):
    """All that it decides about new samples."""
    if isinstance(state, Acceptance):
        return [state.accept(logits, 0.1), state.sets(logits)]
    return [state.test(logits), state.flag(logits, 0.2), state.discoveries(logits)]


def calibrated(make):
    state = make()
    add(state, LOGITS, TARGET)
    return state


@kinds
def test_batches_statistics_merged_ones_copies_and_files_are_one_calibration(make):
    whole, (by_batch, merged, loaded) = calibrated(make), (make() for _ in range(3))
    for batch, labels in zip(LOGITS.flip(0).split(700), TARGET.flip(0).split(700), strict=True):
        add(by_batch, sample_stats(batch, labels, extras=True), None)
        part = make()
        add(part, batch, labels)
        merged.merge(part)
    loaded.load_state_dict(saved(whole.state_dict()))
    copies = copy.deepcopy(whole), pickle.loads(pickle.dumps(whole)), whole.all_reduced()
    for other in (by_batch, merged, loaded, *copies):
        assert torch.equal(other.counts, whole.counts)
        torch.testing.assert_close(decisions(other, NEW), decisions(whole, NEW), rtol=0, atol=0)
    assert whole.samples.sum() == 3000


@kinds
def test_nothing_is_read_back(make):
    state = calibrated(make)
    decisions(state, NEW)  # the first calls read counts
    with NoHostSync():
        decisions(state, NEW)
        add(state, LOGITS, TARGET)


@kinds
def test_a_calibration_in_inference_mode_continues_outside(make):
    state = make()
    with torch.inference_mode():
        add(state, LOGITS, TARGET)
        first = decisions(state, NEW)
    torch.testing.assert_close(decisions(state, NEW), first, rtol=0, atol=0)
    add(state, LOGITS, TARGET)
    assert state.samples.sum() == 6000
    state.reset()
    with pytest.raises(ValueError, match="got none"):
        decisions(state, NEW)


READERS = {
    "accept": (calibrated(KINDS["acceptance"]), lambda x: x.accept(NEW)),
    "sets": (calibrated(KINDS["acceptance"]), lambda x: x.sets(NEW)),
    "flag": (calibrated(KINDS["plain"]), lambda x: x.flag(NEW)),
    "change": (DriftMonitor(calibrated(KINDS["plain"])), lambda x: x.change),
}


@pytest.mark.parametrize(("state", "read"), READERS.values(), ids=READERS.keys())
def test_probabilities_that_no_batch_waited_for_are_rejected(state, read):
    getattr(state, "pool", state)._first["held-out"].found = torch.tensor(True)
    with pytest.raises(ValueError, match="got probabilities"):
        read(state)


@kinds
@pytest.mark.parametrize("name", ["counts", "classes", "invalid"])
def test_counts_that_do_not_add_up(make, name):
    whole = calibrated(make)
    make().load_state_dict(whole.state_dict())
    for change in (-10_000, 1) if name != "invalid" else (-1,):
        state = copy.deepcopy(whole.state_dict())
        state[name].view(-1)[-1] += change
        with pytest.raises(ValueError, match="counts add up, got a damaged one; make it again"):
            make().load_state_dict(state)


STREAM = {
    "seen": -1,
    "skipped": -1,
    "alarm_at": 500,
    "began": 10,
    "begin": -1,
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
