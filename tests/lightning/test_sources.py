"""Where logits and targets come from: outputs, a submodule, a function; and what is said when they do not."""

import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.lightning.cases import (
    CLASSES,
    LIBRARIES,
    QUIET,
    VAL,
    classifier,
    expected,
    loader,
    perceptron,
    points,
    trainer,
)
from torch_boc.lightning import BoCCallback
from torch_boc.lightning.sources import LogitSource

pytestmark = QUIET
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
    with pytest.raises(TypeError, match=r"expected logits in what the step returned.* got") as error:
        trainer(lightning, tmp_path, BoCCallback(on_error="raise")).fit(module, loader(VAL), loader(VAL))
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
    with pytest.raises(ValueError, match=r"got 'model.classifer'; did you mean 'model.classifier'"):
        LogitSource("model.classifer").attach(nn.ModuleDict({"model": nn.ModuleDict({"classifier": nn.Linear(2, 2)})}))
    with pytest.raises(TypeError, match="expected submodule '0' to run in this step"):
        LogitSource("0").take(None, None, None)


@pytest.mark.parametrize(
    ("result", "got"),
    [
        (LOGITS, r"a Tensor \(4, 3\)"),
        (None, "nothing"),
        ((LOGITS,), r"a tuple of Tensor \(4, 3\), 1 in all"),
        ((LOGITS, TARGET, TARGET), r"a tuple of Tensor \(4, 3\), Tensor \(4,\), 3 in all"),
        ([LOGITS, TARGET], r"a list of Tensor \(4, 3\), Tensor \(4,\), 2 in all"),
        ((None, TARGET), r"a tuple of NoneType, Tensor \(4,\)"),
        ((LOGITS.numpy(), TARGET), r"a tuple of ndarray \(4, 3\)"),
        ((LOGITS, 3), r"a tuple of Tensor \(4, 3\), int, 2 in all"),
        ((LOGITS, TARGET.tolist()), r"a tuple of Tensor \(4, 3\), list, 2 in all"),
        ({"logits": LOGITS}, r"a dict with 'logits'"),
    ],
)
def test_what_a_logits_function_must_not_return(result, got):
    with pytest.raises(TypeError, match=rf"a tuple of two, \(logits, target or None\), got {got}"):
        LogitSource(lambda *args: result).take(None, None, None)


def test_what_a_logits_function_may_return():
    assert LogitSource(lambda *args: (LOGITS, None)).take(None, (LOGITS, TARGET), None)[1] is None
    logits, target = LogitSource(lambda *args: (LOGITS, TARGET)).take(None, None, None)
    assert logits.data_ptr() == LOGITS.data_ptr()
    assert target is TARGET


SOURCES = {
    "in what the step returned": lambda logits: LogitSource().take(logits, None, None),
    "from the logits function": lambda logits: LogitSource(lambda *args: (logits, None)).take(None, None, None),
    "from submodule '0'": lambda logits: hooked(logits).take(None, None, None),
}


def hooked(logits):
    model, source = nn.Sequential(nn.Identity()), LogitSource("0")
    source.attach(model)
    model(logits)
    return source


@pytest.mark.parametrize("origin", SOURCES)
@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 1, 2), (1,)])
def test_single_logits_are_refused_with_the_remedy(origin, shape):
    with pytest.raises(TypeError, match=rf"expected logits {origin}, with two classes or more on dim=1") as error:
        SOURCES[origin](torch.randn(shape))
    assert f"got shape {shape}, dtype torch.float32; binary=True takes a single logit" in str(error.value)
    assert "return {'loss': loss, 'logits': logits}" in str(error.value)


@pytest.mark.parametrize("origin", SOURCES)
@pytest.mark.parametrize("wrong", [torch.tensor(0.5), torch.ones(4, 3, dtype=torch.long)])
def test_what_cannot_be_logits_is_refused(origin, wrong):
    with pytest.raises(
        TypeError, match=rf"expected logits {origin}.*got shape \({', '.join(map(str, wrong.shape))}"
    ) as error:
        SOURCES[origin](wrong)
    assert "binary" not in str(error.value)


def test_class_axis_must_exist():
    with pytest.raises(TypeError, match=r"two classes or more on dim=2, as in \(N, C\), got shape \(4, 3\)"):
        LogitSource(dim=2).take(LOGITS, None, None)


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
@pytest.mark.parametrize(
    "target", [TARGET % 2, (TARGET % 2).float(), (TARGET % 2).bool(), (TARGET % 2).float()[:, None]]
)
def test_binary_logits_become_two_classes(shape, target):
    single = torch.randn(shape)
    for source in (LogitSource(binary=True), LogitSource(lambda *args: (single, target), binary=True)):
        logits, classes = source.take({"logits": single}, (LOGITS, target), None)
        torch.testing.assert_close(logits.softmax(1)[:, 1], single.flatten().sigmoid(), rtol=1e-6, atol=0)
        assert torch.equal(classes, TARGET % 2)
        assert classes.dtype == torch.int64


def test_binary_targets_between_the_classes_are_no_classes():
    soft = torch.tensor([0.0, 0.9, 1.0, -100.0])
    _, classes = LogitSource(binary=True).take(torch.randn(4), (LOGITS, soft), None)
    assert classes.tolist() == [0, -1, 1, -100]


def test_binary_refuses_several_classes():
    with pytest.raises(ValueError, match=r"expected a single logit of each sample .*binary=True.* got shape \(4, 3\)"):
        LogitSource(binary=True).take(LOGITS, None, None)


def test_binary_tokens_with_the_class_axis_last():
    single, target = torch.randn(2, 7, 1), torch.ones(2, 7, 1)
    logits, classes = LogitSource(dim=-1, binary=True).take(single, (LOGITS, target), None)
    assert logits.shape == (2, 2, 7)
    assert classes.shape == (2, 7)


def test_outputs_of_a_submodule_that_nobody_asks_for_are_no_error():
    """In training a submodule may return something else; the error waits until somebody wants logits."""
    source = hooked((LOGITS, LOGITS))
    with pytest.raises(TypeError, match="expected logits from submodule '0'; expected a model output that is a tensor"):
        source.take(None, None, None)
    source = hooked((LOGITS, LOGITS))
    source.forget()
    with pytest.raises(TypeError, match="no call of it"):
        source.take(None, None, None)


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
