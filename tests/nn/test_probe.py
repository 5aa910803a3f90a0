"""The modules hold no arithmetic: what they return is what the functional layer returns, of any model."""

import pytest
import torch
from torch import nn

from tests.nn.models import images, linear, resnet, roberta, tokens, vit
from torch_boc import Acceptance, BoCClassifier, BoCPredictor, BoCProbe, ConformalTest, functional
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


class Heads(nn.Module):
    """A backbone with a head of five classes, a binary one, and an output that is neither."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.classes, self.binary = nn.Linear(3, 5), nn.Linear(3, 1)

    def forward(self, x):
        return {"probabilities": self.classes(x).softmax(-1), "score": self.binary(x)}


@pytest.mark.parametrize("source", ["classes", lambda output: output["probabilities"].log()])
def test_the_logits_of_a_chosen_head(source):
    model, x = Heads(), torch.randn(6, 3)
    classifier = BoCClassifier(model, logits=source)
    result = classifier(x)
    assert_same(result.probe, expected(result.logits))
    torch.testing.assert_close(result.gap, functional.bag_of_coins(model.classes(x)).gap)
    assert result.output["score"].shape == (6, 1)
    assert not model.classes._forward_hooks, "nothing stays on the model"
    compiled = torch.compile(classifier, backend="eager")
    for size in (4, 9):
        x = torch.randn(size, 3)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x).gap, classifier(x).gap)
    exported = torch.export.export(classifier, (x,), strict=False).module()
    torch.testing.assert_close(exported(x).probe.gap, classifier(x).gap)


@pytest.mark.parametrize("target", [BoCClassifier, lambda model, **how: BoCPredictor(model, **how)])
def test_a_head_that_cannot_be_used_is_named(target):
    with pytest.raises(ValueError, match=r"a submodule of Heads, got 'class'; did you mean 'classes'\?"):
        target(Heads(), logits="class")
    with pytest.raises(TypeError, match="name of a submodule or a function of the output, got int"):
        target(Heads(), logits=1)


def test_a_head_that_is_called_twice_is_refused():
    layer = nn.Linear(3, 3)
    with pytest.raises(TypeError, match=r"expected one call of the submodule '0', got 2"):
        BoCClassifier(nn.Sequential(layer, layer), logits="0")(torch.randn(2, 3))
    assert not layer._forward_hooks


def test_a_single_logit_is_that_of_two_classes():
    model, x = Heads(), torch.randn(40, 3)
    pairs = torch.cat([torch.zeros(40, 1), model.binary(x)], 1)
    acceptance = Acceptance().calibrate(torch.cat([pairs] * 20).detach(), torch.cat([pairs.argmax(1)] * 20))
    result = BoCClassifier(model, logits="binary", binary=True, acceptance=acceptance)(x)
    assert result.logits.shape == (40, 1)
    torch.testing.assert_close(result.confidence, pairs.softmax(-1).amax(-1))
    assert torch.equal(result.prediction, pairs.argmax(-1))
    assert torch.equal(result.accepted, acceptance.accept(pairs))
    for logits in (model.binary(x), model.binary(x)[:, 0]):
        assert_same(BoCProbe(binary=True)(logits), expected(pairs))
    for make in (BoCProbe, lambda **how: BoCClassifier(nn.Identity(), **how)):
        with pytest.raises(ValueError, match=r"expected a single logit of each sample, as binary=True says"):
            make(binary=True)(pairs)
        with pytest.raises(ValueError, match="expected single logits, got probabilities"):
            make(binary=True)(torch.linspace(0, 1, 9))


@pytest.mark.parametrize("columns", [None, ["prediction", "gap"]])
def test_results_unpack_and_index(columns):
    result = BoCClassifier(linear(), columns=columns)(torch.randn(6, 3))
    logits, probe, output = result
    assert logits is result[0] is result["logits"] is result.logits
    assert probe is result.probe
    assert output is result[-1]
    assert result[:2] == (logits, probe)
    assert result["gap"] is result.gap
    assert result.keys() == ["logits", *(columns or ProbeOutput._fields)]
    assert dict(result)["prediction"] is result.prediction
    with pytest.raises(KeyError, match="'output', expected one of logits, "):
        _ = result["output"]


class Twice(nn.Module):
    """A model with the names of a classifier."""

    def __init__(self):
        super().__init__()
        self.model = linear()


@pytest.mark.parametrize("make", [linear, Twice])
def test_checkpoints_of_the_model_alone_and_of_the_classifier_load_anywhere(make):
    saved, test = make(), ConformalTest("msp").calibrate(4 * torch.randn(50, 5))
    whole = BoCClassifier(saved, conformal_test=test)
    for state in (saved.state_dict(), whole.state_dict()):
        for strict, extra in ((True, {}), (False, {"extra": torch.zeros(1)})):
            classifier = BoCClassifier(make(), conformal_test=test.clone())
            nn.init.zeros_(next(classifier.parameters()))
            report = classifier.load_state_dict({**state, **extra}, strict=strict)
            assert report.unexpected_keys == list(extra)
            assert report.missing_keys == []
            assert torch.equal(next(classifier.parameters()), next(saved.parameters()))
            assert torch.equal(classifier.conformal_test.counts, test.counts)
        inside = nn.ModuleDict({"net": BoCClassifier(make(), conformal_test=test.clone())})
        nn.init.zeros_(next(inside.parameters()))
        inside.load_state_dict({f"net.{key}": x for key, x in state.items()})
        assert torch.equal(next(inside.parameters()), next(saved.parameters()))
    with pytest.raises(RuntimeError, match=r'Missing key.*"model\.'):
        BoCClassifier(make()).load_state_dict(dict(list(saved.state_dict().items())[1:]))
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"extra"'):
        BoCClassifier(make()).load_state_dict({**saved.state_dict(), "extra": torch.zeros(1)})
