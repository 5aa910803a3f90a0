"""The modules hold no arithmetic: what they return is what the functional layer returns, of any model."""

import pytest
import torch
from torch import nn

from tests.nn.models import images, linear, resnet, roberta, tokens, vit
from torch_boc import BoCClassifier, BoCProbe, functional
from torch_boc.nn import ProbeOutput


def expected(logits, trials=100):
    coins = functional.bag_of_coins(logits)
    log_p = functional.log_p_value(coins, trials)
    names = ("prediction", "confidence", "dominance", "gap", "forced_gap", "free_gap", "concentration")
    return ProbeOutput(*(getattr(coins, name) for name in names), functional.p_value(coins, trials), log_p)


def assert_same(probe, other):
    for name, value, reference in zip(ProbeOutput._fields, probe, other, strict=True):
        torch.testing.assert_close(value, reference, rtol=0, atol=0, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("shape", [(4, 3), (3,), (2, 5, 7), (0, 4), (6, 2)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_probe_is_the_functional_layer(shape, dtype):
    logits = 4 * torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(1))
    result = BoCProbe(trials=30, dim=-1)(logits)
    assert_same(result, expected(logits, 30))
    assert {x.shape for x in result} == {logits.shape[:-1]}
    assert result.prediction.dtype == torch.int64
    assert result.log_p_value.dtype == torch.float64


def test_chosen_columns_come_as_a_dict_in_their_order():
    logits = 4 * torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(1))
    names = ("p_value", "free_gap", "energy", "prediction", "logit_gap")
    result = BoCProbe(trials=30, dim=-1, columns=names)(logits)
    assert tuple(result) == names
    whole, scores = expected(logits, 30), functional.compute_scores(logits, ["energy", "logit_gap"])
    for name, value in result.items():
        reference = scores[name].to(value.dtype) if name in scores else getattr(whole, name)
        torch.testing.assert_close(value, reference, rtol=1e-6, atol=0)


def test_chosen_columns_have_gradients_and_only_they_are_there():
    classifier, x = BoCClassifier(linear(), columns=["free_gap"]), torch.randn(6, 3)
    result = classifier(x)
    assert result.free_gap is result.probe["free_gap"]
    with pytest.raises(AttributeError, match="no attribute 'gap'; it has logits, probe, output, free_gap"):
        _ = result.gap
    result.free_gap.sum().backward()
    assert classifier.model.weight.grad.abs().sum() > 0
    assert repr(classifier.probe) == "BoCProbe(trials=100, columns=['free_gap'])"


MODELS = {
    "ResNet-18": (resnet, lambda: ((images(3, 32),), {})),
    "ViT": (vit, lambda: ((), {"pixel_values": images(3)})),
    "ViT, positional": (vit, lambda: ((images(3),), {})),
    "RoBERTa with loss": (roberta, lambda: ((), {**tokens(3), "labels": torch.tensor([0, 1, 2])})),
}


@pytest.mark.parametrize(("make", "inputs"), MODELS.values(), ids=MODELS.keys())
def test_real_models_as_they_are(make, inputs):
    model = make()
    args, kwargs = inputs()
    result = BoCClassifier(model)(*args, **kwargs)
    own = model(*args, **kwargs)
    logits = own if isinstance(own, torch.Tensor) else own.logits
    assert type(result.output) is type(own)
    torch.testing.assert_close(result.logits, logits)
    assert_same(result.probe, expected(result.logits))
    if "labels" in kwargs:
        torch.testing.assert_close(result.output.loss, own.loss)


BAD = [
    (lambda: BoCClassifier(lambda x: x), r"expected model as a .*Module, got function"),
    (lambda: BoCClassifier(linear(), trials=0), "expected trials as a positive integer, got 0"),
    (lambda: BoCClassifier(nn.LSTM(3, 4))(torch.ones(1, 2, 3)), r"got a tuple of Tensor \(1, 2, 4\), tuple, .*; wrap "),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_arguments_are_checked(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize("make", [BoCProbe, lambda **options: BoCClassifier(nn.Identity(), **options)])
def test_class_axis_and_probabilities(make):
    """Nothing is guessed: (N, C, T) and (N, T, C) have the same axes; and probabilities are no logits."""
    images = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(
        ValueError, match=r"expected dim.*: dim=1 reads 5 classes .* \(2, 3\), .* 3 classes .* \(2, 5\)"
    ):
        make()(images)
    assert make(dim=1)(images).gap.equal(functional.bag_of_coins(images, dim=1).gap)
    assert make(dim=-1)(images).gap.equal(functional.bag_of_coins(images).gap)
    rows = images[0].softmax(-1)
    with pytest.raises(ValueError, match=r"got probabilities \(every row of the first batch .* validate_args=False"):
        make()(rows)
    assert make(validate_args=False)(rows).gap.equal(functional.bag_of_coins(rows).gap)
    probe = make()
    probe(images[0])
    probe(rows)  # only the first batch is looked at


def test_probabilities_on_a_device_are_refused_by_the_second_call(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    probe = BoCProbe()
    probe._first.found = torch.tensor(True)  # what the first call has left there, where it must not wait
    with pytest.raises(ValueError, match="got probabilities"):
        probe(torch.randn(4, 3))
    probe(torch.randn(4, 3))
