"""The metrics inside torchmetrics' own containers, and through everything a training loop does to them."""

import pytest
import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.wrappers import Running

from tests.metrics.cases import joined, labelled_batches, ood_batches
from tests.metrics.tester import assert_same
from torch_boc import BoCMetric, BoCSeparation, CoherenceGap, boc_metrics
from torch_boc.functional import boc_summary

VARIANTS = ({}, {"alpha": 0.0499999}, {"trials": 101}, {"trials": 999_999}, {"trials": 1_000_000}, {"bins": 16})


NEIGHBOURS = {
    "none": {},
    "accuracy": {"accuracy": MulticlassAccuracy(7, average="micro")},
    "one of the same name": {"gap": CoherenceGap(), "nll": CoherenceGap(part="free")},
    "another prefix": {"other": BoCMetric(prefix="other_", trials=20)},
    "another prefix in one group": {"other": BoCMetric(prefix="other_")},
}


@pytest.mark.parametrize("beside", NEIGHBOURS)
def test_keys_with_a_prefix_are_the_same_beside_others(beside):
    keys = ("nll", "gap", "accuracy")
    metrics = {"boc_": BoCMetric(prefix="boc_", keys=keys)} | {k: m.clone() for k, m in NEIGHBOURS[beside].items()}
    collection = MetricCollection(metrics, prefix="val/")
    batches = labelled_batches(20, 30, 40)
    for number, batch in enumerate(batches):
        collection.update(*batch)  # in place, also after results were asked for
        expected = boc_summary(*joined(batches[: number + 1]))
        found = {key: value for key, value in collection.compute().items() if key.startswith("val/boc_")}
        assert_same(found, {f"val/boc_{key}": expected[key] for key in keys})


def test_compute_groups_merge_only_what_is_the_same():
    metrics = {f"m{i}": BoCMetric(**variant) for i, variant in enumerate(VARIANTS)}
    metrics |= {"same": BoCMetric(), "forced": CoherenceGap(part="forced"), "free": CoherenceGap(part="free")}
    collection = MetricCollection(metrics, compute_groups=True)
    logits = torch.tensor([[9.0, 0.0, 0.0]])  # on which the variants agree
    collection.update(logits)
    groups = [set(group) for group in collection.compute_groups.values()]
    assert {"m0", "same"} in groups
    assert all(len(group) == 1 for group in groups if "m0" not in group)


@pytest.mark.parametrize("make", [BoCMetric, CoherenceGap])
def test_narrow_modules_keep_wide_sums(make):
    batches = labelled_batches(40, 50)
    module = torch.nn.ModuleDict({"metric": make(), "layer": torch.nn.Linear(2, 2)})
    metric = module["metric"]
    metric.update(*batches[0])
    for convert in (lambda: module.to(dtype=torch.bfloat16), module.bfloat16, module.half, lambda: module.to("cpu")):
        convert()
        states = [getattr(metric, name) for name in metric._defaults]
        assert {x.dtype for x in [*states, *metric._defaults.values()]} <= {torch.float64, torch.int64}
    assert module["layer"].weight.dtype == torch.float16
    metric.update(*batches[1])
    other = make()
    for batch in batches:
        other.update(*batch)
    assert_same(metric.compute(), other.compute(), atol=1e-15)


def test_state_dict_round_trip():
    batches = labelled_batches(40, 50)
    first, second, other = BoCMetric(), BoCMetric(), BoCMetric(trials=200)
    assert first.state_dict() == {}
    for metric in (first, second, other):
        metric.persistent(True)
    with pytest.raises(RuntimeError, match="boc_counts_trials_100"):
        other.load_state_dict(first.state_dict(), strict=True)
    first.update(*batches[0])
    second.load_state_dict(first.state_dict(), strict=True)
    second.update(*batches[1])
    first.update(*batches[1])
    assert_same(second.total(), first.total(), atol=0)


@pytest.mark.parametrize("options", [{}, {"exact_up_to": 0}])
@pytest.mark.filterwarnings("ignore:.* the scores are counted in bins")
def test_a_running_window_of_a_separation(options):
    batches = ood_batches(30, 30, 30)
    running, last = Running(BoCSeparation(("msp",), **options), 2), BoCSeparation(("msp",), **options)
    for batch in batches:
        running.update(*batch)
    for batch in batches[1:]:
        last.update(*batch)
    assert_same(running.compute(), last.compute())


def test_logits_that_require_grad_leave_no_graph():
    metric = BoCMetric()
    logits = torch.randn(5, 3, requires_grad=True)
    metric.update(logits, torch.zeros(5, dtype=torch.long))
    assert not any(getattr(metric, name).requires_grad for name in metric._defaults)


class Holder(torch.nn.Module):
    """A module that holds a metric, for another loop to update."""

    def __init__(self, metric):
        super().__init__()
        self.layer, self.metric = torch.nn.Linear(3, 4), metric

    def forward(self, x):
        return self.layer(x)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("make", [BoCMetric, CoherenceGap, BoCSeparation, boc_metrics])
def test_modules_that_hold_a_metric_can_be_scripted(make):
    assert torch.jit.script(Holder(make()))(torch.ones(2, 3)).shape == (2, 4)
