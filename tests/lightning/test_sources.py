"""Where logits and targets come from: outputs, a submodule, a function; and what is said when they do not."""

import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.lightning.cases import QUIET, VAL, chosen, classifier, expected, loader, points, trainer
from torch_boc.lightning import BoCCallback
from torch_boc.lightning.sources import LogitSource

pytestmark = QUIET
LOGITS, TARGET = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])


def from_module(outputs, batch, module):
    return module.seen, batch[1]


@pytest.mark.parametrize("source", [None, "model", "model.2", from_module], ids=["outputs", "top", "part", "function"])
def test_every_source_gives_the_same_without_another_run_and_keeps_nothing(library, source, tmp_path):
    module, alive, left = classifier(library, gives="logits" if source is None else "loss"), [], []

    def remember(_, args, output):
        alive.append(weakref.ref(output))
        if callable(source):
            module.seen = output

    module.model.register_forward_hook(remember)
    module.on_validation_batch_start = module.on_train_batch_start = lambda *args: left.append(
        sum(reference() is not None for reference in alive)
    )
    keys = ("samples", "gap", "accuracy")
    callback = BoCCallback(logits=source, keys=keys, every_n_train_steps=2)
    trainer_options = {"inference_mode": False, "num_sanity_val_steps": 0}
    run = trainer(library, tmp_path, callback, **trainer_options)
    run.fit(module, loader(points(48, 1)), loader(VAL))
    assert module.calls == 3 + 3
    assert left == [0] * 6 or callable(source)
    assert "train/boc/gap" in run.callback_metrics
    assert sum(len(part._forward_hooks) for part in module.modules()) == 1  # that of this test
    module.model._forward_hooks.clear()
    assert chosen(run.callback_metrics, "val/boc/") == pytest.approx(expected(module, VAL, keys))


def test_error_leaves_no_hook(library, tmp_path):
    module = classifier(library, gives="loss")
    module.on_validation_batch_end = lambda *args: 1 / 0
    with pytest.raises(ZeroDivisionError):
        trainer(library, tmp_path, BoCCallback(logits="model")).validate(module, loader(VAL), verbose=False)
    assert not module.model._forward_hooks


@pytest.mark.parametrize("output", [LOGITS, {"logits": LOGITS}, SimpleNamespace(logits=LOGITS)])
@pytest.mark.parametrize("batch", [(LOGITS, TARGET), [LOGITS, TARGET], {"x": LOGITS, "labels": TARGET}, {"y": TARGET}])
def test_outputs_and_batches(output, batch):
    logits, target = LogitSource().take(output, batch, None)
    assert logits.data_ptr() == LOGITS.data_ptr()
    assert target is TARGET
    assert LogitSource(lambda *args: (LOGITS, None)).take(output, batch, None)[1] is None


def hooked(logits):
    model, source = nn.Sequential(nn.Identity()), LogitSource("0")
    source.attach(model)
    source.attach(model)  # which does no harm
    model(LOGITS)
    model(logits)  # the last call counts
    return source


SOURCES = {
    "in what the step returned": lambda logits: LogitSource().take(logits, None, None),
    "from the logits function": lambda logits: LogitSource(lambda *args: (logits, None)).take(None, None, None),
    "from submodule '0'": lambda logits: hooked(logits).take(None, None, None),
}


@pytest.mark.parametrize("origin", SOURCES)
@pytest.mark.parametrize(
    "wrong", [*map(torch.randn, [(4,), (4, 1), (4, 1, 2)]), torch.tensor(0.5), torch.ones(4, 3, dtype=torch.long)]
)
def test_what_cannot_be_logits_is_refused_with_the_remedies(origin, wrong):
    with pytest.raises(TypeError, match=rf"expected logits {origin}, with two classes or more on dim=1") as error:
        SOURCES[origin](wrong)
    assert f"got shape {tuple(wrong.shape)}, dtype {wrong.dtype}; " in str(error.value)
    single = wrong.ndim and wrong.shape[-1] != 3
    assert ("binary=True takes a single logit" in str(error.value)) == bool(single)
    for remedy in ("return {'loss': loss, 'logits': logits}", "logits='model.classifier'", "logits=lambda outputs"):
        assert remedy in str(error.value)


@pytest.mark.parametrize("output", [(LOGITS, LOGITS), {"loss": LOGITS.sum()}, 3])
def test_outputs_without_logits(output):
    for origin in ("in what the step returned", "from submodule '0'"):
        with pytest.raises(TypeError, match=f"expected logits {origin}; expected a model output"):
            SOURCES[origin](output)


def test_wrong_sources():
    with pytest.raises(TypeError, match=r"expected logits as None .*got int"):
        BoCCallback(logits=3)
    with pytest.raises(ValueError, match=r"got 'model.classifer'; did you mean 'model.classifier'"):
        LogitSource("model.classifer").attach(nn.ModuleDict({"model": nn.ModuleDict({"classifier": nn.Linear(2, 2)})}))
    source = hooked(LOGITS)
    source.forget()
    with pytest.raises(TypeError, match="expected submodule '0' to run in this step, got no call of it"):
        source.take(None, None, None)


@pytest.mark.parametrize(
    ("result", "got"),
    [
        (LOGITS, r"a Tensor \(4, 3\)"),
        (None, "nothing"),
        ((LOGITS, TARGET, TARGET), r"a tuple of Tensor \(4, 3\), Tensor \(4,\), 3 in all"),
        ((None, TARGET), r"a tuple of NoneType, Tensor \(4,\)"),
        ((LOGITS, 3), r"a tuple of Tensor \(4, 3\), int, 2 in all"),
        ({"logits": LOGITS}, r"a dict with 'logits'"),
    ],
)
def test_what_a_logits_function_must_not_return(result, got):
    with pytest.raises(TypeError, match=rf"a tuple of two, \(logits, target or None\), got {got}"):
        LogitSource(lambda *args: result).take(None, None, None)


def test_class_axis():
    tokens, labels = torch.randn(2, 7, 3), torch.zeros(2, 7, dtype=torch.long)
    logits, target = LogitSource(dim=-1).take({"logits": tokens}, {"labels": labels}, None)
    assert logits.shape == (2, 3, 7)
    assert target is labels
    with pytest.raises(TypeError, match=r"two classes or more on dim=2, as in \(N, C\), got shape \(4, 3\)"):
        LogitSource(dim=2).take(LOGITS, None, None)


class TestBinary:
    @pytest.mark.parametrize("shape", [(4,), (4, 1)])
    @pytest.mark.parametrize("convert", [torch.Tensor.long, torch.Tensor.bool, lambda x: x.float()[:, None]])
    def test_single_logits_become_two_classes(self, shape, convert):
        single, target = torch.randn(shape), convert(TARGET % 2)
        for source in (LogitSource(binary=True), LogitSource(lambda *args: (single, target), binary=True)):
            logits, classes = source.take({"logits": single}, (LOGITS, target), None)
            torch.testing.assert_close(logits.softmax(1)[:, 1], single.flatten().sigmoid(), rtol=1e-6, atol=0)
            assert torch.equal(classes, TARGET % 2)

    def test_targets_between_the_classes_are_no_classes(self):
        soft = torch.tensor([0.0, 0.9, 1.0, -100.0])
        _, classes = LogitSource(binary=True).take(torch.randn(4), (LOGITS, soft), None)
        assert classes.tolist() == [0, -1, 1, -100]

    def test_tokens_and_several_classes(self):
        single, target = torch.randn(2, 7, 1), torch.ones(2, 7, 1)
        logits, classes = LogitSource(dim=-1, binary=True).take(single, (LOGITS, target), None)
        assert (logits.shape, classes.shape) == ((2, 2, 7), (2, 7))
        with pytest.raises(ValueError, match=r"a single logit of each sample .*binary=True.* got shape \(4, 3\)"):
            LogitSource(binary=True).take(LOGITS, None, None)
