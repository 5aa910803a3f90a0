"""The model is lent to the predictor: it gets its modes back. Bad input is refused with a remedy."""

import sys

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.inference.cases import Counting, data, joined, predictor
from tests.nn.models import linear
from torch_boc import BoCPredictor


def mixed_model():
    """In training, but for a normalisation that the user has frozen."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 5)).train()
    model[1].eval()
    return model


def modes(model):
    return [module.training for module in model.modules()]


def test_eval_mode_during_and_the_old_modes_after():
    model = mixed_model()
    before, buffers = modes(model), [x.clone() for x in model.buffers()]
    during = []
    model.register_forward_hook(lambda *_: during.append((modes(model), torch.is_inference_mode_enabled())))
    for _ in predictor(model).predict(data()[0].split(5)):
        assert not torch.is_inference_mode_enabled()
        assert torch.is_grad_enabled()
    assert during == [([False] * 5, True)] * 5
    assert modes(model) == before
    assert all(torch.equal(x, y) for x, y in zip(model.buffers(), buffers, strict=True))


def broken(batches, error):
    yield from batches
    raise error


@pytest.mark.parametrize("error", [RuntimeError("loader"), KeyboardInterrupt()])
def test_the_old_modes_after_an_error_in_the_loader(error):
    model = mixed_model()
    before = modes(model)
    with pytest.raises(type(error)):
        list(predictor(model).predict(broken(data()[0].split(5), error)))
    assert modes(model) == before


def test_the_old_modes_after_an_error_outside_and_after_stopping_early():
    model = mixed_model()
    before = modes(model)
    with pytest.raises(ZeroDivisionError):
        [1 / 0 for _ in predictor(model).predict(data()[0].split(5))]
    assert modes(model) == before
    tables = predictor(model).predict(data()[0].split(5))
    next(tables)
    tables.close()
    assert modes(model) == before


def test_an_error_of_the_model_is_passed_on():
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        list(predictor().predict([torch.ones(2, 7)]))


class Tokens(nn.Module):
    def forward(self, x):
        return torch.zeros(len(x), 4, 5)


class Pooled(nn.Module):
    def forward(self, x):
        return torch.zeros(1, 5)


X = torch.ones(2, 3)
REFUSED = {
    "three parts": ([(X, X, X)], ValueError, r"got a tuple of 3; with several inputs .*\(\(x1, x2\), target\)"),
    "numbers": ([[1.0, None]], TypeError, r"expected a batch with tensors of shape \(N, ...\), got a float"),
    "lists": (
        [{"x": [1, 2], "labels": [0, 1]}],
        TypeError,
        "got a dict with 'x': list; give the DataLoader a",
    ),
    "text": ([(X, ["cat", "dog"])], TypeError, "expected targets as integer class indices, got a list of str"),
    "soft targets": ([(X, torch.ones(2, 5))], TypeError, "expected target as integer class indices, got shape"),
    "too many": ([(X, torch.ones(3).long())], ValueError, r"expected target of shape \(2,\)"),
    "no loader": (7, TypeError, "expected a loader, a data set or a tensor, got int"),
}


@pytest.mark.parametrize(("loader", "error", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_batches_that_are_refused(loader, error, message):
    with pytest.raises(error, match=message):
        list(predictor().predict(loader))


@pytest.mark.parametrize("model", [Tokens(), Pooled()])
def test_logits_of_another_shape_are_refused(model):
    with pytest.raises(
        ValueError, match=r"expected logits of shape \(2, C\) for 2 samples, got .*one row for each sample"
    ):
        list(predictor(model).predict([X]))


def test_arguments_are_checked():
    with pytest.raises(TypeError, match=r"expected model as a .*Module, got function"):
        BoCPredictor(lambda x: x)
    with pytest.raises(ValueError, match=r"expected dtype as .*bfloat16.* or None, got .*float32"):
        predictor(dtype=torch.float32)
    with pytest.raises(ValueError, match="positive integer"):
        predictor(trials=0)


def test_the_bar_counts_samples_with_rate_and_time_left(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    list(BoCPredictor(Counting()).predict(DataLoader(TensorDataset(*data()), 5)))
    line = capsys.readouterr().err
    assert "23/23" in line
    assert "samples/s" in line
    assert "<00:00" in line


@pytest.mark.parametrize("progress", [True, False])
def test_no_bar_where_there_is_no_terminal_or_none_is_wanted(progress, capsys):
    list(BoCPredictor(Counting(), progress=progress).predict(DataLoader(TensorDataset(*data()), 5)))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("module", "call"), [("tqdm.auto", "predict"), ("pandas", "to_frame")])
def test_a_missing_dependency_names_the_extra(module, call, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'torch-boc\[eval\]'"):
        list(getattr(BoCPredictor(Counting()), call)([X]))


def test_probabilities_are_refused():
    model, x = nn.Sequential(linear(), nn.Softmax(-1)), torch.randn(8, 3)
    with pytest.raises(ValueError, match=r"expected logits from the model, got probabilities .*remove the softmax"):
        list(predictor(model).predict([x]))
    logs = nn.Sequential(linear(), nn.LogSoftmax(-1))
    torch.testing.assert_close(
        joined(predictor(logs).predict([x]))["gap"], joined(predictor(linear()).predict([x]))["gap"], rtol=1e-5, atol=0
    )
