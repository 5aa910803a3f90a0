"""States are changed in place, so that a CUDA graph can hold an update; and an update is few operations, or one."""

import pytest
import torch

from tests.dispatch import Counted, NoHostSync
from tests.kernels.cases import needs_native
from tests.metrics.cases import labelled_batches
from torch_boc import BoCMetric, BoCSeparation, CoherenceGap, kernels

MAKERS = {
    "whole": BoCMetric,
    "gap": CoherenceGap,
    "gap of each class": lambda: CoherenceGap(7, average="none"),
}
makers = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
paths = pytest.mark.parametrize("path", ["auto", "torch"])
(FIRST, FIRST_TARGET), (SECOND, SECOND_TARGET) = labelled_batches(40, 23, dtype=torch.float32)


def update(metric, logits=FIRST, target=FIRST_TARGET):
    metric.update(logits, target > 3 if isinstance(metric, BoCSeparation) else target)


def states(metric):
    return {name: getattr(metric, name) for name in metric._defaults}


def assert_same_states(metric, *batches):
    fresh = type(metric).clone(metric)
    fresh.reset()
    for batch in batches:
        update(fresh, *batch)
    for name, value in states(metric).items():
        torch.testing.assert_close(value, getattr(fresh, name), rtol=1e-12, atol=1e-12)


@paths
@makers
def test_update_keeps_the_tensors(make, path):
    metric = make()
    before = states(metric)
    with kernels.use(path):
        update(metric)
        update(metric, SECOND, SECOND_TARGET)
    assert all(getattr(metric, name) is value for name, value in before.items())
    assert all(value.any() for value in before.values() if value.numel() > 1)
    assert not any(default.any() for default in metric._defaults.values())
    with kernels.use(path):
        assert_same_states(metric, (FIRST, FIRST_TARGET), (SECOND, SECOND_TARGET))


@paths
@makers
@pytest.mark.parametrize("inside_first", [True, False])
def test_inference_mode_may_begin_and_end_between_updates(make, path, inside_first):
    metric = make()
    with kernels.use(path):
        with torch.inference_mode(inside_first):
            metric.reset()
            update(metric)
        with torch.inference_mode(not inside_first):
            update(metric, SECOND, SECOND_TARGET)
        update(metric)
        assert_same_states(metric, (FIRST, FIRST_TARGET), (SECOND, SECOND_TARGET), (FIRST, FIRST_TARGET))
    metric.compute()


def test_what_was_given_out_does_not_change():
    metric = BoCMetric()
    update(metric)
    total, result = metric.total(), metric.compute()
    copies = [x.clone() for x in (*total, *result.values())]
    update(metric)
    for now, before in zip((*total, *result.values()), copies, strict=True):
        torch.testing.assert_close(now, before, rtol=0, atol=0, equal_nan=True)


@needs_native
@pytest.mark.parametrize("ignore_index", [None, -100])
@pytest.mark.parametrize(("make", "expected"), [(BoCMetric, "torch_boc.tally"), (CoherenceGap, "torch_boc.columns")])
def test_an_update_is_one_native_pass(make, expected, ignore_index):
    metric = make(ignore_index=ignore_index)
    update(metric)
    with Counted() as counted:
        update(metric)
    assert [name for name in counted.names if name.startswith("torch_boc.")] == [expected]


def test_update_reads_nothing_back_on_either_path():
    for path in ("auto", "torch"):
        for make in (*MAKERS.values(), BoCSeparation, lambda: BoCSeparation(exact_up_to=10)):
            metric = make()
            metric.validate_args = False
            with kernels.use(path), NoHostSync():
                update(metric)
