"""A watched module runs as before, and every call of it is counted once."""

import pytest
import torch
from torch import nn

from tests.nn.models import images, linear, vit
from torch_boc import BoCMetric, watch
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


def test_the_output_and_the_gradients_are_untouched():
    model, x = vit(), images(2)
    plain = model(pixel_values=x).logits
    with watch(model):
        watched = model(pixel_values=x).logits
    torch.testing.assert_close(watched, plain, rtol=0, atol=0)
    watched.sum().backward()
    assert all(p.grad is not None for p in model.classifier.parameters())


def test_an_error_removes_the_hook():
    model = linear()
    watching = watch(model)
    logits = model(torch.randn(4, 3))
    with pytest.raises(RuntimeError), watching:
        model(torch.randn(4, 7))
    assert not model._forward_hooks
    assert_counts(watching, logits)


def test_as_a_handle():
    model = linear()
    watching = watch(model)
    logits = model(torch.randn(4, 3))
    watching.remove()
    watching.remove()
    model(torch.randn(4, 3))
    assert_counts(watching, logits)


def test_one_metric_over_several_modules():
    metric, models = BoCMetric(trials=7), [linear(), linear()]
    with watch(models[0], metric) as first, watch(models[1], metric) as second:
        logits = [model(torch.randn(4, 3)) for model in models]
    assert first.metric is second.metric is metric
    expected = boc_summary(torch.cat(logits).detach(), trials=7)
    torch.testing.assert_close(metric.compute()["gap"], expected["gap"])
    assert metric.compute()["samples"] == 8


def test_nested_watches_count_apart():
    model = linear()
    with watch(model) as outer:
        first = model(torch.randn(4, 3))
        with watch(model) as inner:
            second = model(torch.randn(6, 3))
        third = model(torch.randn(2, 3))
    assert_counts(outer, first, second, third)
    assert_counts(inner, second)


def test_a_part_of_a_model():
    model = vit()
    with watch(model.classifier) as watching:
        logits = model(pixel_values=images(3)).logits
    assert_counts(watching, logits)


@pytest.mark.parametrize("shape", [(4, 6, 3), (2, 3, 4, 3), (3,)])
def test_logits_with_more_or_fewer_axes(shape):
    model = linear()
    with watch(model, dim=-1 if len(shape) > 3 else None) as watching:
        logits = model(torch.randn(shape))
    assert_counts(watching, logits.reshape(-1, 5))


def test_inference_mode_and_training_may_alternate():
    model = linear()
    with watch(model) as watching:
        with torch.inference_mode():
            first = model(torch.randn(4, 3))
        second = model(torch.randn(4, 3))
        second.sum().backward()
    assert_counts(watching, first.clone(), second)


def test_a_compiled_module():
    model = linear()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with watch(compiled) as watching:
        logits = [compiled(torch.randn(4, 3)) for _ in range(2)]
    assert_counts(watching, *logits)
    torch.compiler.reset()


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


def test_a_module_without_logits_is_an_error():
    module = nn.LSTM(3, 4)
    with pytest.raises(TypeError, match=r"got a tuple of Tensor \(1, 2, 4\), tuple, .*; wrap the model"), watch(module):
        module(torch.ones(1, 2, 3))
    assert not module._forward_hooks
