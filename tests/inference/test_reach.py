"""What a model depends on without holding it as a weight: hooks, unregistered modules, the file of its class."""

import types

import numpy as np
import pytest
import torch
from torch import nn

from tests.inference.test_identity import Model, held, hooked
from tests.nn.models import linear
from torch_boc.inference.identity import identify


def test_hooks_and_arrays_are_told_apart():
    for change_with in (lambda model, n: model.layer.register_forward_hook(hooked(n)), lambda m, n: array(m, n)):
        models = [Model() for _ in range(3)]
        for model, number in zip(models, (1, 2, 1), strict=True):
            change_with(model, number)
        first, second, third = (identify(model) for model in models)
        assert first == third != second
        assert first.unknown == []


def array(model, number):
    model.scales = {"a": np.array([1.0, number]), "b": np.float32(number)}


SCALE = 1.0


def scaled(x):
    return SCALE * halved(x)


def halved(x):
    return x / 2 if SCALE else scaled(x)  # functions that call each other come to an end


class Scaled(Model):
    """Depends on what stands beside the class in its file."""

    def forward(self, x):
        return [scaled(row) for row in super().forward(x)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("SCALE", 2.0), ("SCALE", torch.tensor(1.0)), ("scaled", lambda x: x), ("halved", lambda x: x)],
    ids=["number", "tensor", "function", "function of a function"],
)
def test_what_stands_beside_a_class_is_noticed(name, value, monkeypatch):
    before = identify(Scaled())
    assert identify(Scaled()) == before
    monkeypatch.setitem(globals(), name, value)
    assert identify(Scaled()).code != before.code


class Stateful(nn.Module):
    """Has a state that is no tensor."""

    def __init__(self, number):
        super().__init__()
        self._hide = lambda: number

    def get_extra_state(self):
        return self._hide()


def with_teachers(*teachers):
    """In a list, modules are not registered: no checkpoint has them."""
    model = Model()
    model.teachers = list(teachers)
    return model


def test_modules_that_are_not_registered_are_read():
    first, second = linear(), nn.Sequential(linear(), nn.Dropout(0.1))
    before = identify(with_teachers(first, second))
    assert before == identify(with_teachers(first, second))
    assert before.unknown == []
    assert identify(with_teachers(second, first)) != before
    changed = nn.Sequential(linear(), nn.Dropout(0.1))
    with torch.no_grad():
        changed[0].weight[-1, -1] += 1
    assert identify(with_teachers(first, changed)).weights != before.weights
    assert identify(with_teachers(first, nn.Sequential(linear(), nn.Dropout(0.2)))).code != before.code
    states = [identify(with_teachers(Stateful(number), Stateful(0))).weights for number in (1, 2)]
    assert states[0] != states[1]
    model = with_teachers()
    model.teachers.append(model)  # no matter that it holds itself
    assert identify(model).unknown == []


def test_the_order_of_modules_in_a_list_is_noticed():
    def make(*order):
        model = Model()
        model.second = linear()
        model.path = [(model.layer, model.second)[i] for i in order]
        return identify(model).attributes

    assert make(0, 1) == make(0, 1) != make(1, 0)


def test_the_owner_of_a_method_is_noticed():
    def make(number):
        model, owner = Model(), linear()
        with torch.no_grad():
            owner.weight[0, 0] = number
        model.activation = owner.forward
        return identify(model)

    assert make(1.0) == make(1.0) != make(2.0)
    model = Model()
    model.activation = [].append
    model.read = types.MethodType(held, object())
    assert identify(model).unknown == ["read (object)"]
