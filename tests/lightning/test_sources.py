"""Where logits and targets come from: outputs, a submodule, a function; and what is said when they do not."""

import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.lightning.cases import CLASSES, LIBRARIES, QUIET, classifier, expected, loader, perceptron, points, trainer
from torch_boc.lightning import BoCCallback
from torch_boc.lightning.sources import LogitSource

pytestmark = QUIET
VAL = points(37, 2)
LOGITS, TARGET = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
lightning = LIBRARIES["lightning"]


def from_module(outputs, batch, module):
    return module.seen, batch[1]


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
@pytest.mark.parametrize("source", [None, "model", "model.2", from_module], ids=["outputs", "top", "part", "function"])
def test_every_source_gives_the_same_without_another_run(library, source, tmp_path):
    module = classifier(library, perceptron(), gives="logits" if source is None else "loss")
    if callable(source):
        module.model.register_forward_hook(lambda _, args, output: setattr(module, "seen", output))
    keys = ("samples", "gap", "accuracy")
    run = trainer(library, tmp_path, BoCCallback(logits=source, keys=keys, every_n_train_steps=2))
    run.fit(module, loader(points(48, 1)), loader(VAL))
    assert module.calls == 3 + 2 + 3  # training, sanity checking, validation
    values = {key: run.callback_metrics[f"val/boc/{key}"].item() for key in keys}
    want = expected(module, VAL)
    assert values == pytest.approx({key: want[key] for key in keys})
    assert "train/boc/gap" in run.callback_metrics
    assert not any(len(part._forward_hooks) for part in module.modules()) or callable(source)


@pytest.mark.parametrize("gives", ["loss", "nothing"])
def test_missing_logits_are_reported_with_the_remedies_in_the_sanity_check(gives, tmp_path):
    module = classifier(lightning, perceptron(), gives="loss")
    if gives == "nothing":
        module.validation_step = lambda batch, batch_idx: None
    with pytest.raises(TypeError, match="expected logits in what the step returned, got") as error:
        trainer(lightning, tmp_path, BoCCallback()).fit(module, loader(VAL), loader(VAL))
    for remedy in ("return {'loss': loss, 'logits': logits}", "logits='model.classifier'", "logits=lambda outputs"):
        assert remedy in str(error.value)
    assert module.calls <= 1


def test_error_leaves_no_hook(tmp_path):
    module = classifier(lightning, perceptron(), gives="loss")
    module.on_validation_batch_end = lambda *args: 1 / 0
    with pytest.raises(ZeroDivisionError):
        trainer(lightning, tmp_path, BoCCallback(logits="model")).validate(module, loader(VAL), verbose=False)
    assert not module.model._forward_hooks


@pytest.mark.parametrize("source", [None, "model"])
def test_no_logits_are_kept(source, tmp_path):
    """Of each batch, training included, the logits are gone when the next begins."""
    module, alive, left = classifier(lightning, perceptron(), gives="loss" if source else "logits"), [], []
    module.model.register_forward_hook(lambda _, args, output: alive.append(weakref.ref(output)))

    def count(*args):
        left.append(sum(reference() is not None for reference in alive))

    module.on_validation_batch_start = module.on_train_batch_start = count
    options = {"inference_mode": False, "num_sanity_val_steps": 0}
    trainer(lightning, tmp_path, BoCCallback(logits=source), **options).fit(module, loader(VAL), loader(VAL))
    assert len(left) == 6
    assert set(left) <= {0}


@pytest.mark.parametrize("output", [LOGITS, {"logits": LOGITS}, SimpleNamespace(logits=LOGITS)])
@pytest.mark.parametrize("batch", [(LOGITS, TARGET), [LOGITS, TARGET], {"x": LOGITS, "labels": TARGET}, {"y": TARGET}])
def test_outputs_and_batches(output, batch):
    logits, target = LogitSource().take(output, batch, None)
    assert logits.data_ptr() == LOGITS.data_ptr()
    assert target is TARGET


@pytest.mark.parametrize(
    "output", [torch.tensor(0.5), torch.rand(4), TARGET, (LOGITS, LOGITS), {"loss": LOGITS.sum()}, 3, None]
)
def test_what_is_no_logits(output):
    with pytest.raises(TypeError, match="expected logits in what the step returned"):
        LogitSource().take(output, None, None)


def test_class_axis_can_be_the_last():
    tokens, labels = torch.randn(2, 7, 3), torch.zeros(2, 7, dtype=torch.long)
    logits, target = LogitSource(dim=-1).take({"logits": tokens}, {"labels": labels}, None)
    assert logits.shape == (2, 3, 7)
    assert target is labels


def test_wrong_sources():
    with pytest.raises(TypeError, match=r"expected logits as None .*got int"):
        BoCCallback(logits=3)
    with pytest.raises(TypeError, match=r"return \(logits, target or None\), got a Tensor"):
        LogitSource(lambda *args: LOGITS).take(None, None, None)
    with pytest.raises(ValueError, match=r"got 'model.classifer'; did you mean 'model.classifier'"):
        LogitSource("model.classifer").attach(nn.ModuleDict({"model": nn.ModuleDict({"classifier": nn.Linear(2, 2)})}))
    with pytest.raises(TypeError, match="expected submodule '0' to run in this step"):
        LogitSource("0").take(None, None, None)


def test_several_calls_in_a_step_leave_the_last():
    model, source = nn.Sequential(nn.Linear(8, CLASSES)), LogitSource("0")
    source.attach(model)
    source.attach(model)
    _, second = model(torch.randn(3, 8)), model(torch.randn(4, 8))
    assert torch.equal(source.take(None, None, model)[0], second)
    source.detach()
    model(torch.randn(3, 8))
    with pytest.raises(TypeError, match="no call of it"):
        source.take(None, None, model)
