"""A model is the same if nothing that its answers depend on has changed; what cannot be known is named."""

import functools
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torchmetrics import MeanMetric

from tests.nn.models import linear, resnet, roberta, vit
from torch_boc.inference.identity import identify


class Model(nn.Module):
    """Holds a bit of everything."""

    limit = 5

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()
        self.temperature, self._shift, self.scales = 1.0, 0, [1.0, 2.0]
        self.mean = torch.zeros(3)
        self.config = types.SimpleNamespace(scale=1.0, layers=(1, 2))
        self.activation = functools.partial(torch.clamp, min=0)
        self.register_buffer("table", torch.arange(300.0), persistent=False)
        self.register_buffer("graph", torch.eye(9).to_sparse())
        self.register_buffer("empty", torch.zeros(0, dtype=torch.bfloat16))

    def forward(self, x):
        return self.layer(x - self.mean) / self.temperature


class Edited(Model):
    """The same but for one number in the code."""

    def forward(self, x):
        return self.layer(x - self.mean) / self.temperature / 2


class EditedAgain(Model):
    """The same but for another number in the code."""

    def forward(self, x):
        return self.layer(x - self.mean) / self.temperature / 3


Edited.__qualname__ = EditedAgain.__qualname__ = "Model"


def change(attribute, value):
    return lambda model: setattr(model, attribute, value)


def hooked(number):
    return lambda module, inputs, output: output * number


def in_place(name, place):
    def apply(model):
        with torch.no_grad():
            model.get_parameter(name).view(-1)[place] += 1e-3

    return apply


def swap(model):
    with torch.no_grad():
        model.layer.weight.copy_(model.layer.weight.flip(0))


CHANGES = {
    "hook": ("attributes", lambda model: model.layer.register_forward_hook(hooked(2))),
    "pre-hook": ("attributes", lambda model: model.layer.register_forward_pre_hook(lambda module, x: (x[0] * 2,))),
    "array": ("attributes", change("scales", np.array([1.0, 2.0]))),
    "last weight": ("weights", in_place("layer.weight", -1)),
    "order of weights": ("weights", swap),
    "bias": ("weights", in_place("layer.bias", 3)),
    "buffer that no checkpoint keeps": ("weights", lambda model: model.table[299:].add_(1)),
    "sparse buffer": ("weights", lambda model: setattr(model, "graph", 2 * model.graph)),
    "dtype": ("weights", lambda model: model.double()),
    "temperature": ("attributes", change("temperature", 2.0)),
    "private number": ("attributes", change("_shift", 1)),
    "type": ("attributes", change("temperature", 1)),
    "list": ("attributes", lambda model: model.scales.append(3.0)),
    "tensor that is no buffer": ("attributes", change("mean", torch.tensor([0.0, 0.0, 1e-6]))),
    "settings": ("attributes", lambda model: setattr(model.config, "scale", 2.0)),
    "function": ("attributes", change("activation", functools.partial(torch.clamp, min=1))),
    "lambda": ("attributes", change("activation", lambda x: x + 1)),
    "new attribute": ("attributes", change("anything", "new")),
    "setting of a layer": ("code", lambda model: setattr(model.layer, "out_features", 6)),
}


@pytest.mark.filterwarnings("ignore:Sparse CS.* tensor support")
@pytest.mark.parametrize(("digest", "apply"), CHANGES.values(), ids=CHANGES.keys())
def test_what_answers_depend_on_is_noticed(digest, apply):
    model = Model()
    before = identify(model)
    assert before == identify(Model())
    apply(model)
    after = identify(model)
    assert getattr(before, digest) != getattr(after, digest)
    assert before.unknown == after.unknown == []


def test_code_is_noticed(monkeypatch):
    codes = [identify(kind()).code for kind in (Model, Edited, EditedAgain)]
    assert len(set(codes)) == 3
    monkeypatch.setattr(Model, "limit", 6)
    assert identify(Model()).code not in codes


def held(number):
    return lambda x: x + number


def test_what_a_function_holds_is_noticed():
    models = [Model() for _ in range(3)]
    for model, number in zip(models, (1, 2, 1), strict=True):
        model.activation = held(number)
    first, second, third = (identify(model) for model in models)
    assert first == third != second


UNCHANGED = {
    "mode": lambda model: model.train(),
    "frozen": lambda model: model.requires_grad_(False),
    "gradients": lambda model: model(torch.ones(2, 3)).sum().backward(),
    "hooks of the backward": lambda model: model.register_full_backward_hook(lambda *_: None),
    "strides": lambda model: setattr(model.layer.weight, "data", model.layer.weight.data.t().contiguous().t()),
    "copied weights": lambda model: model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}),
}


@pytest.mark.parametrize("apply", UNCHANGED.values(), ids=UNCHANGED.keys())
def test_what_answers_do_not_depend_on_is_not(apply):
    model = Model().eval()
    apply(model)
    assert identify(model) == identify(Model())


def test_metrics_take_no_part():
    models = [Model(), Model()]
    for model in models:
        model.mean_loss = MeanMetric()
    models[1].mean_loss.update(3.0)
    assert identify(models[0]) == identify(models[1])


def test_lightning_modules_before_and_after_a_trainer_has_run():
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self, temperature):
            super().__init__()
            self.save_hyperparameters()
            self.layer = linear()

    one, other = Module(1.0), Module(1.0)
    other._current_fx_name = "validation_step"
    assert identify(one) == identify(other)
    assert identify(one).attributes != identify(Module(2.0)).attributes


@pytest.mark.parametrize("make", [roberta, vit, resnet])
def test_known_networks_hold_nothing_unknown(make):
    assert identify(make()) == identify(make())
    assert identify(make()).unknown == []


@pytest.mark.filterwarnings("ignore:.*deprecated", "ignore:.*quantiz")
def test_packed_weights_of_quantised_layers():
    def quantised(shift):
        model = linear()
        with torch.no_grad():
            model.weight[-1, -1] += shift
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(model), {nn.Linear}, dtype=torch.qint8)

    first, again, other = (identify(quantised(shift)) for shift in (0.0, 0.0, 0.5))
    assert first.weights == again.weights != other.weights


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature", "ignore:.*torch.jit")
def test_what_cannot_be_known_is_named():
    model = Model()
    model.helper = object()
    assert identify(model).unknown == ["helper (object)"]
    assert identify(nn.Linear(2, 3, device="meta")).unknown == ["weight (Parameter)", "bias (Parameter)"]
    assert identify(nn.Sequential(nn.LazyLinear(3))).unknown[0] == "0.weight (UninitializedParameter)"
    assert identify(torch.jit.trace(linear(), torch.ones(1, 3))).unknown == ["model (TorchScript)"]
    model.itself = [model.scales]
    model.itself.append(model.itself)
    assert identify(model).unknown[-1] == "itself (list)"


def of_a_model():
    """Its identity, with values whose order depends on the process, and a function."""
    model = Model()
    model.activation, model.names = held(2), {"a", "b", "c", "d"}
    return identify(model)


def test_the_same_in_another_process():
    root = str(Path(__file__).parents[2])
    program = "from tests.inference.test_identity import of_a_model; print(of_a_model())"
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": root}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(of_a_model())
