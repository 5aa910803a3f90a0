"""States are changed in place, so that a CUDA graph can hold an update; and an update is few operations, or one."""

import pytest
import torch
from torchmetrics import MetricCollection

from tests.dispatch import NoHostSync
from tests.metrics.cases import labelled_batches
from torch_boc import BoCMetric, BoCSeparation, CoherenceGap, kernels

MAKERS = {
    "whole": BoCMetric,
    "gap": CoherenceGap,
    "gap of each class": lambda: CoherenceGap(7, average="none"),
    "bins": lambda: BoCSeparation(("msp", "gap", "entropy"), thresholds=256),
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


@paths
def test_a_compute_group_shares_its_states(path):
    collection = MetricCollection({"one": BoCMetric(prefix="a_"), "two": BoCMetric(keys=["gap"], prefix="b_")})
    with kernels.use(path):
        for batch in ((FIRST, FIRST_TARGET), (SECOND, SECOND_TARGET), (FIRST, FIRST_TARGET)):
            collection.update(*batch)
        result = collection.compute()
        collection.update(SECOND, SECOND_TARGET)
        assert collection.compute()["a_samples"] == 2 * (40 + 23)
    assert len(collection.compute_groups) == 1
    assert result["a_samples"] == 40 + 23 + 40
    assert result["a_gap"] == result["b_gap"]


def test_what_was_given_out_does_not_change():
    metric, bins = BoCMetric(), MAKERS["bins"]()
    update(metric)
    update(bins)
    total, result, histograms = metric.total(), metric.compute(), bins.histograms()
    copies = [x.clone() for x in (*total, *result.values(), histograms)]
    update(metric)
    update(bins)
    for now, before in zip((*total, *result.values(), histograms), copies, strict=True):
        torch.testing.assert_close(now, before, rtol=0, atol=0, equal_nan=True)


def test_update_reads_nothing_back_on_either_path():
    for path in ("auto", "torch"):
        for make in MAKERS.values():
            metric = make()
            metric.validate_args = False
            with kernels.use(path), NoHostSync():
                update(metric)
            assert any(value.any() for value in states(metric).values())
