"""A watched module runs as before, and every call of it is counted once."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional

from tests.dispatch import NoHostSync, needs_fake_gpu
from tests.nn.models import linear
from torch_boc import BoCMetric, ConformalTest, DriftMonitor, watch
from torch_boc.functional import boc_summary


def assert_counts(watching, *logits):
    """The metric holds exactly these logits."""
    result, expected = watching.compute(), boc_summary(torch.cat([z.detach() for z in logits]))
    assert result.keys() == expected.keys()
    for key, value in result.items():
        torch.testing.assert_close(value, expected[key], rtol=1e-6, atol=1e-7, equal_nan=True)


def test_every_call_in_the_block_is_counted():
    model = linear()
    with watch(model) as watching:
        first, second = model(torch.randn(8, 3)), model(torch.randn(5, 3))
    model(torch.randn(100, 3))
    assert_counts(watching, first, second)
    assert not model._forward_hooks


def test_an_error_removes_the_hook():
    model = linear()
    watching = watch(model)
    logits = model(torch.randn(4, 3))
    with pytest.raises(RuntimeError), watching:
        model(torch.randn(4, 7))
    assert not model._forward_hooks
    assert_counts(watching, logits)


def test_logits_with_more_or_fewer_axes():
    for shape, options in (((2, 3, 4, 3), {"dim": -1}), ((3,), {})):
        model = linear()
        with watch(model, **options) as watching:
            logits = model(torch.randn(shape))
        assert_counts(watching, logits.reshape(-1, 5))
    model = linear(1)
    with watch(model, binary=True) as watching:
        z = model(torch.randn(9, 3))
    assert_counts(watching, torch.cat([torch.zeros_like(z), z], 1))


def test_copies_and_files_of_a_watched_module_are_not_watched():
    model = linear()
    with watch(model) as watching:
        twin = copy.deepcopy(model)
        logits = model(torch.ones(2, 3))
        assert twin(torch.ones(2, 3)).equal(logits)
        assert b"torch_boc" not in pickle.dumps(model)
        assert pickle.loads(pickle.dumps(model))(torch.ones(2, 3)).equal(logits)
    assert_counts(watching, logits)


def test_the_metric_follows_the_logits_to_their_device():
    class Elsewhere(nn.Module):
        def forward(self, x):
            return torch.empty(4, 5, device="meta")

    metric = BoCMetric(validate_args=False)
    with watch(Elsewhere(), metric):
        pass
    assert metric.device.type == "cpu"
    module = Elsewhere()
    with watch(module, metric):
        module(None)
    assert metric.device.type == "meta"
    assert {getattr(metric, name).device.type for name in metric._defaults} == {"meta"}


def test_what_goes_wrong_in_the_hook_does_not_reach_the_caller():
    module = nn.LSTM(3, 4)
    with watch(module) as watching:
        with pytest.warns(UserWarning, match=r"watch skips .* got a tuple of Tensor \(1, 2, 4\), tuple, "):
            module(torch.ones(1, 2, 3))
        module(torch.ones(1, 2, 3))  # said once
    assert watching.skipped == 2
    assert not module._forward_hooks
    model, x = linear(), stream(300, 0.01)
    with watch(model, monitor=monitor(), on_alarm=lambda _: 1 / 0) as watching:
        with pytest.warns(UserWarning, match="ZeroDivisionError"):
            model(x)
        model(x)
    assert watching.skipped == 1


@pytest.mark.parametrize("source", ["1", lambda output: output["aux"]], ids=["a submodule", "a function"])
def test_one_head_of_several(source):
    model = nn.Sequential(linear(4), nn.Linear(4, 5))
    model.register_forward_hook(lambda module, args, output: {"logits": output[:, :2], "aux": output})
    with watch(model, logits=source) as watching:
        logits = model(torch.randn(8, 3))["aux"]
    assert_counts(watching, logits)
    with pytest.raises(AttributeError, match="`head`"):
        watch(model, logits="head")


LOGITS, TARGET = torch.randn(60, 4, generator=torch.Generator().manual_seed(3)), torch.arange(60) % 4
LOSSES = {
    "classes": lambda z, y: functional.cross_entropy(z, y),
    "log-probabilities": lambda z, y: functional.nll_loss(z.log_softmax(1), y),
    "another ignore_index": lambda z, y: functional.cross_entropy(z, y.where(y != 3, 255), ignore_index=255),
    "images": lambda z, y: nn.CrossEntropyLoss()(z.T.reshape(1, 4, -1), y[None]),
    "uint8": lambda z, y: functional.nll_loss(z.log_softmax(1), y.to(torch.uint8)),
    "one-hot": lambda z, y: functional.cross_entropy(z, functional.one_hot(y, 4).float()),
    "one logit": lambda z, y: functional.binary_cross_entropy_with_logits(z[:, :1], (y[:, None] > 1).float()),
    "one logit, smoothed": lambda z, y: functional.binary_cross_entropy_with_logits(z[:, 0], (y > 1) * 0.8 + 0.1),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_a_block_are_watched(name):
    with watch() as boc:
        for z, y in zip(LOGITS.split(25), TARGET.split(25), strict=True):
            LOSSES[name](z, y)
    functional.cross_entropy(LOGITS, TARGET)  # after the block
    rows, target, ignore_index = LOGITS, TARGET, 3 if name == "another ignore_index" else None
    if "one logit" in name:
        rows, target = nn.functional.pad(LOGITS[:, :1], (1, 0)), None if "smoothed" in name else (TARGET > 1).long()
    expected = boc_summary(rows, target, ignore_index=ignore_index)
    torch.testing.assert_close(boc.compute(), expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    assert boc.skipped == 0


def test_no_logits_are_kept_in_the_block():
    logits = []
    with watch():
        for _ in range(6):
            z = LOGITS.clone()
            functional.cross_entropy(z, TARGET)
            logits.append(StorageWeakRef(z.untyped_storage()))
            del z
            assert sum(not x.expired() for x in logits) <= 1


def test_a_block_without_a_loss_or_with_several_kinds_is_an_error():
    with (
        pytest.raises(ValueError, match=r"got no loss; watch the module that returns the logits: watch\(model\)"),
        watch(),
    ):
        LOGITS.softmax(-1)
    with pytest.raises(ValueError, match="got losses of 2 and 4 classes; watch the module"), watch():
        [functional.cross_entropy(LOGITS[:, :size], TARGET.clamp_max(1)) for size in (4, 2)]
    with pytest.raises(ZeroDivisionError), watch():  # not hidden by ours
        _ = 1 / 0
    with pytest.warns(UserWarning, match="multi-label logits"), watch() as boc:
        functional.binary_cross_entropy_with_logits(LOGITS, LOGITS.sigmoid())
    assert boc.skipped == 1
    with pytest.raises(ValueError, match="expected a module with logits, dim or binary"):
        watch(binary=True)


def test_a_monitor_sees_the_losses_of_a_block():
    ours, alone = monitor(), monitor()
    alone.update(linear()(stream(90)).detach())
    with watch(monitor=ours):
        functional.cross_entropy(linear()(stream(90)), torch.zeros(90, dtype=torch.long))
    assert int(ours.seen) == 90
    torch.testing.assert_close(ours.state_dict(), alone.state_dict())


def monitor(**options):
    """It knows 500 samples of `linear` on normal inputs."""
    with torch.no_grad():
        held_out = linear()(torch.randn(500, 3, generator=torch.Generator().manual_seed(1)))
    return DriftMonitor(ConformalTest(**options).calibrate(held_out), alpha=0.01)


def stream(samples, scale=1.0, seed=2):
    return scale * torch.randn(samples, 3, generator=torch.Generator().manual_seed(seed))


def test_a_monitor_sees_every_call_and_no_metric_is_computed():
    model, ours, alone = linear(), monitor(), monitor()
    with watch(model, monitor=ours) as watching:
        for x in stream(90).split(40):
            alone.update(model(x).detach())
    assert watching.monitor is ours
    assert watching.metric is None
    assert int(ours.seen) == 90
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match=r"got only a monitor; .*watch\(module, BoCMetric\(\), monitor=monitor\)"):
        watching.compute()


def test_the_alarm_is_told_once():
    model, told = linear(), []
    with watch(model, monitor=monitor(), on_alarm=told.append) as watching:
        model(stream(40))
        assert told == []
        for x in stream(300, 0.05, seed=3).split(20):
            model(x)
            assert len(told) == int(watching.monitor.alarm)
    assert told == [watching.monitor]
    assert 30 <= watching.monitor.began <= 60  # it is an estimate


def test_a_monitor_reads_nothing_back_unless_an_alarm_is_asked_for():
    model, ours = linear(), monitor()
    with watch(model, monitor=ours):
        model(stream(20))  # the first batch is searched for probabilities
    with watch(model, monitor=ours), NoHostSync():
        model(stream(20))
    with watch(model, monitor=monitor(), on_alarm=print), pytest.warns(match="HostSyncError"), NoHostSync():
        model(stream(20))


@needs_fake_gpu
def test_the_monitor_follows_the_logits_to_their_device():
    ours, model = monitor(), linear()
    with watch(model, monitor=ours):
        pass
    assert ours.evidence.device.type == "cpu"
    with FakeTensorMode(allow_non_fake_inputs=True):
        for module in (ours, ours.conformal_test, ours.pool):
            for name, buffer in list(module.named_buffers(recurse=False)):
                setattr(module, name, torch.zeros(buffer.shape, dtype=buffer.dtype))
        model = nn.Linear(3, 5, device="cuda")
        with watch(model, monitor=ours):
            model(torch.randn(4, 3, device="cuda"))
    assert {x.device.type for x in ours.buffers()} == {"cuda"}


BAD = [
    (
        lambda: watch(linear(), monitor=monitor().conformal_test),
        "expected monitor as .*DriftMonitor, got ConformalTest",
    ),
    (lambda: watch(linear(), monitor=DriftMonitor(ConformalTest())), "expected held-out samples"),
    (lambda: watch(linear(), on_alarm=print), "expected a monitor for on_alarm, got none"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_arguments_of_a_monitor_are_checked(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
