"""States are changed in place, so that a CUDA graph can hold an update; and an update is few operations, or one."""

import copy
import pickle

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.dispatch import Counted, NoHostSync
from tests.kernels.cases import needs_native
from tests.metrics.cases import labelled_batches
from torch_boc import BoCMetric, BoCSeparation, CoherenceGap, boc_metrics, kernels
from torch_boc.metrics import coherence
from torch_boc.metrics.coherence import MOST_WAITING, MOST_WAITING_LOGITS

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


class TestWaiting:
    """Without kernels, small batches are added together, which nobody notices."""

    BATCHES = labelled_batches(*[3] * 90, dtype=torch.float32)

    @pytest.fixture(autouse=True)
    def by_torch(self):
        with kernels.use("torch"):
            yield

    def updated(self, metric, batches=BATCHES):
        for logits, target in batches:
            mine = logits.clone()
            metric.update(mine, target)
            mine.fill_(torch.nan)  # a loop may use its memory again
        return metric

    def expected(self, batches=BATCHES, **options):
        metric = BoCMetric(**options)
        metric.update(*map(torch.cat, zip(*batches, strict=True)))
        return metric.compute()

    @pytest.mark.parametrize(
        "through",
        [
            lambda metric: metric,
            copy.deepcopy,
            lambda metric: pickle.loads(pickle.dumps(metric)),
            lambda metric: metric.to("cpu").half().eval(),
            lambda metric: metric if metric.total() and states(metric) else None,
            lambda metric: merged(BoCMetric(), metric),
            lambda metric: loaded(metric),
        ],
        ids=["unchanged", "copied", "pickled", "moved", "read", "merged", "loaded"],
    )
    def test_batches_that_wait_count(self, through):
        metric = self.updated(BoCMetric(), self.BATCHES[:70])
        metric = self.updated(through(metric), self.BATCHES[70:])
        torch.testing.assert_close(metric.compute(), self.expected(), rtol=1e-7, atol=1e-12)

    def test_few_passes_are_made_and_little_memory_is_kept(self):
        metric = BoCMetric()
        self.updated(metric, self.BATCHES[:1])
        with Counted() as counted:
            self.updated(metric)
        assert len(counted.names) < 4 * len(self.BATCHES) + 500
        assert len(metric._waiting) <= MOST_WAITING
        large = torch.randn(MOST_WAITING_LOGITS // 7 + 1, 7)
        metric.update(large)
        assert not metric._waiting

    def test_batches_of_other_kinds_are_added_by_themselves(self):
        (logits, target), *_ = self.BATCHES
        kinds = [(logits, target), (logits.double(), target), (logits, None), (logits, target.int()), (logits, target)]
        metric = BoCMetric()
        for kind in kinds:
            metric.update(*kind)
        assert metric.compute()["samples"] == 15
        metric.reset()
        for ignore_index in (-100, int(target[0])):
            metric.ignore_index = ignore_index
            metric.update(logits, target)
        assert metric.compute()["samples"] == 6 - (target == target[0]).sum()

    def test_a_reset_forgets_and_wrong_input_is_refused_at_once(self):
        metric = self.updated(BoCMetric(), self.BATCHES[:5])
        metric.reset()
        assert metric.total().counts.sum() == 0
        with pytest.raises(ValueError, match="expected target of shape"):
            metric.update(torch.randn(3, 7), torch.zeros(2, dtype=torch.int64))
        self.updated(metric)
        torch.testing.assert_close(metric.compute(), self.expected(), rtol=1e-7, atol=1e-12)

    def test_every_view_of_a_collection_sees_them(self):
        metrics = boc_metrics(["accuracy", "gap"], prefix="")
        for half in (self.BATCHES[:40], self.BATCHES[40:]):
            self.updated(metrics, half)
            seen = metrics.compute()
        expected = self.expected(keys=["accuracy", "gap"])
        torch.testing.assert_close(seen, {key: x.float() for key, x in expected.items()})

    def test_after_an_error_they_still_wait(self, monkeypatch):
        metric = self.updated(BoCMetric(), self.BATCHES[:50])
        with monkeypatch.context() as patch:
            patch.setattr(coherence, "add_logits", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                metric.total()
        for wrong in (torch.zeros(3, 7, dtype=torch.int64), torch.zeros(3, 7, dtype=torch.complex64)):
            with pytest.raises(TypeError, match="expected floating-point logits"):
                metric.update(wrong, torch.zeros(3, dtype=torch.int64))
        twin = copy.copy(metric)
        assert twin.compute()["samples"] == metric.compute()["samples"] == 150
        self.updated(metric, self.BATCHES[50:])
        with FakeTensorMode(allow_non_fake_inputs=True):
            states(metric)
        torch.testing.assert_close(metric.compute(), self.expected(), rtol=1e-7, atol=1e-12)

    def test_a_metric_that_is_read_after_each_batch_does_not_wait(self):
        metric = BoCMetric()
        for batch in self.BATCHES[:3]:
            self.updated(metric, [batch]).total()
        assert self.updated(metric, self.BATCHES[3:4])._waiting == []
        self.updated(metric, self.BATCHES)
        assert metric._waiting
        assert metric.compute()["samples"] == 3 * 94

    def test_forward_gives_the_value_of_its_batch(self):
        metric = self.updated(BoCMetric(), self.BATCHES[:4])
        torch.testing.assert_close(metric(*self.BATCHES[4]), self.expected(self.BATCHES[4:5]), equal_nan=True)
        assert metric.compute()["samples"] == 15


def merged(metric, other):
    metric.merge_state(other)
    return metric


def loaded(metric):
    metric.persistent(True)
    fresh = BoCMetric(metric.num_classes)
    fresh.persistent(True)
    fresh.update(*TestWaiting.BATCHES[0])
    fresh.load_state_dict(metric.state_dict())
    return fresh
