"""`boc_metrics` gives the values of `BoCMetric` in the containers that take only metrics of one number."""

import pytest
import torch
from torchmetrics.wrappers import BootStrapper, MetricTracker, MinMaxMetric

from tests.lightning.cases import QUIET, TRAIN, VAL, Classifier, expected, loader, trainer
from tests.metrics.cases import joined, labelled_batches
from tests.metrics.tester import assert_same, check_metric
from torch_boc import BoCMetric, CoherenceGap, boc_metrics
from torch_boc.functional import boc_summary
from torch_boc.functional.summary import CLASSWISE, DEFAULT_KEYS, RISK_KEYS

BATCHES = labelled_batches(50, 8, 31)


def values(batches, keys=DEFAULT_KEYS, prefix="val/boc/"):
    metric = BoCMetric(keys=keys, prefix=prefix)
    for batch in batches:
        metric.update(*batch)
    return {key: value.float() for key, value in metric.compute().items()}


@pytest.mark.parametrize("keys", [DEFAULT_KEYS, ("gap", *RISK_KEYS, CLASSWISE)], ids=["default", "all states"])
def test_all_views_have_one_state(keys):
    metrics = boc_metrics(keys)
    for epoch in (BATCHES, BATCHES[1:]):
        for batch in epoch:
            metrics.update(*batch)
        found = metrics.compute()
        assert list(found) == [f"val/boc/{key}" for key in keys]
        assert_same(found, values(epoch, keys))
        assert metrics.compute_groups == {0: list(keys)}
        metrics.reset()
    forward = metrics(*BATCHES[0])
    assert_same(forward, values(BATCHES[:1], keys))


def test_one_view_is_a_metric():
    check_metric(lambda: boc_metrics(["nll", "gap"])["nll"], BATCHES, boc_summary(*joined(BATCHES))["nll"].float())


@pytest.mark.filterwarnings("ignore:The default value for `maximize`")  # of torchmetrics before 1.7
def test_a_tracker_finds_the_best_step():
    metrics = boc_metrics()
    tracker = MetricTracker(metrics, maximize=[x.higher_is_better for x in metrics.values()])  # the default since 1.7
    for batch in BATCHES:
        tracker.increment()
        tracker.update(*batch)
    best, step = tracker.best_metric(return_step=True)
    each = [values([batch]) for batch in BATCHES]
    for key, choose in (("val/boc/nll", min), ("val/boc/ece", min), ("val/boc/accuracy", max)):
        assert best[key] == choose(found[key] for found in each)
        assert each[step[key]][key] == best[key]


@pytest.mark.parametrize("make", [CoherenceGap, lambda: boc_metrics()["nll"]], ids=["gap", "nll"])
def test_wrappers_of_one_number(make):
    torch.manual_seed(0)
    wrapped = BootStrapper(make(), num_bootstraps=20, quantile=torch.tensor([0.05, 0.95]))
    extremes, alone = MinMaxMetric(make()), []
    for batch in BATCHES:
        wrapped.update(*batch)
        alone.append(extremes(*batch)["raw"])
        extremes.reset()
    metric = make()
    for batch in BATCHES:
        metric.update(*batch)
    low, high = wrapped.compute()["quantile"]
    assert low < metric.compute() < high
    extremes.update(*BATCHES[0])
    assert extremes.compute()["raw"] == alone[0]


class TestLightning:
    pytestmark = QUIET

    @pytest.mark.parametrize("how", ["collection", "one view", "on epoch end"])
    def test_values_are_logged(self, tmp_path, how):
        module = Classifier()
        module.metrics = boc_metrics()["nll"] if how == "one view" else boc_metrics()

        def step(batch, batch_idx):
            module.metrics.update(module(batch[0]), batch[1])
            if how == "collection":
                module.log_dict(module.metrics)
            elif how == "one view":
                module.log("val/boc/nll", module.metrics)

        def end():
            module.log_dict(module.metrics.compute())
            module.metrics.reset()

        module.validation_step = step
        if how == "on epoch end":
            module.on_validation_epoch_end = end
        run = trainer(tmp_path)
        for data in (TRAIN, VAL):  # an epoch does not see the one before it
            run.validate(module, loader(data), verbose=False)
            want = expected(module, data, ("nll",) if how == "one view" else DEFAULT_KEYS)
            found = {key.removeprefix("val/boc/"): float(value) for key, value in run.callback_metrics.items()}
            assert found == pytest.approx(want, rel=1e-6)
