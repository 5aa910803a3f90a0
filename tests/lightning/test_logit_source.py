"""Where logits and targets come from: outputs, a submodule, a function; and what is said when they do not."""

import copy
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.lightning.cases import (
    QUIET,
    VAL,
    Classifier,
    chosen,
    expected,
    loader,
    points,
    trainer,
    validated,
)
from torch_boc import BoCMetric
from torch_boc.lightning import BoCCallback
from torch_boc.lightning.logit_source import LogitSource

pytestmark = QUIET
LOGITS, TARGET = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])


def from_module(outputs, batch, module):
    return module.seen, batch[1]


@pytest.mark.parametrize("source", [None, "model", "model.2", from_module], ids=["outputs", "top", "part", "function"])
def test_every_source_gives_the_same_without_another_run_and_keeps_nothing(source, tmp_path):
    module, alive, left = Classifier(gives="logits" if source is None else "loss"), [], []

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
    run = trainer(tmp_path, callback, **trainer_options)
    run.fit(module, loader(points(48, 1)), loader(VAL))
    assert module.calls == 3 + 3
    assert left == [0] * 6 or callable(source)
    assert "train/boc/gap" in run.callback_metrics
    assert sum(len(part._forward_hooks) for part in module.modules()) == 1  # that of this test
    module.model._forward_hooks.clear()
    assert chosen(run.callback_metrics, "val/boc/") == pytest.approx(expected(module, VAL, keys))


def hooked(*outputs):
    """The source after so many calls of a submodule in one step."""
    model, source = nn.Sequential(nn.Identity()), LogitSource("0")
    source.attach(model)
    source.attach(model)  # which does no harm
    for logits in outputs:
        model(logits)
    return source


NOTHING = nn.Identity()
SOURCES = {
    "outputs": lambda logits: LogitSource().extract({"logits": logits}, None, NOTHING),
    "function": lambda logits: LogitSource(lambda *args: (logits, None)).extract(None, None, NOTHING),
    "submodule": lambda logits: hooked(logits).extract(None, None, NOTHING),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (torch.randn(4), r"expected logits .*(binary=True|which returned)"),
        (torch.randn(4, 1), "at least 2 classes, got single logits"),
        (torch.randn(4, 2, 3), r"expected dim, .* dim=1 reads 2 classes .* \(4, 3\), .* dim=-1 3 classes .* \(4, 2\)"),
        (torch.tensor(0.5), r"expected logits"),
        (torch.ones(4, 3, dtype=torch.long), "expected .*logits"),
    ],
)
def test_what_cannot_be_logits_is_refused(source, wrong, words):
    with pytest.raises((TypeError, ValueError), match=words):
        BoCMetric(dim=-1).update(source(wrong).rows)


def test_wrong_sources():
    with pytest.raises(TypeError, match=r"expected logits as None, .*got int"):
        BoCCallback(logits=3)
    with pytest.raises(ValueError, match=r"got 'model.classifer'; did you mean 'model.classifier'"):
        LogitSource("model.classifer").attach(nn.ModuleDict({"model": nn.ModuleDict({"classifier": nn.Linear(2, 2)})}))
    for calls in (0, 2):  # chunks, views: which samples are the batch is not known
        with pytest.raises(TypeError, match=f"expected one call of the submodule '0' in a step, got {calls} "):
            hooked(*[LOGITS] * calls).extract(None, (LOGITS, TARGET), NOTHING)
    source = hooked(LOGITS)
    source.forget()
    with pytest.raises(TypeError, match="got 0 "):
        source.extract(None, None, NOTHING)


def test_what_a_logits_function_must_not_return():
    for result, got in (
        (None, "nothing"),
        ((LOGITS, TARGET, 3), ".*, 3 in all"),
        ((LOGITS, 3), r"a tuple of Tensor .*int"),
    ):
        with pytest.raises(TypeError, match=rf"a tuple of two, \(logits, target or None\), got {got}"):
            LogitSource(lambda *args, result=result: result).extract(None, None, NOTHING)


class TestTokens:
    """The class axis is found from the target, and causal language models predict the next label."""

    def test_class_axis(self):
        labels = torch.zeros(2, 7, dtype=torch.long)
        for shape, options in (((2, 7, 3), {}), ((2, 3, 7), {}), ((2, 7, 7), {"dim": -1})):
            given = torch.randn(shape)
            found = LogitSource(**options).extract({"logits": given}, {"labels": labels}, NOTHING)
            assert found.rows.equal(given.movedim(1, -1) if shape == (2, 3, 7) else given)
            assert found.target is labels

    def test_labels_that_a_step_of_a_causal_model_shifts(self, tmp_path):
        cases = pytest.importorskip("tests.transformers.cases", exc_type=ModuleNotFoundError)
        data = DataLoader(cases.tagged(16, None), batch_size=16, collate_fn=cases.collate)
        module, losses = Classifier(cases.gpt2()), []

        def step(batch, batch_idx):
            output = module.model(**batch)
            losses.append(output.loss.item())
            return {"logits": output.logits[:, :-1], "labels": batch["labels"][:, 1:]}

        module.validation_step = step
        with pytest.warns(UserWarning, match="expected the loss of a causal language model, which shifts"):
            assert "val/boc/nll" not in validated(tmp_path, module, data)
        found = validated(tmp_path, module, data, target="labels")
        assert found["val/boc/nll"].item() == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
@pytest.mark.parametrize("convert", [torch.Tensor.long, torch.Tensor.bool, lambda x: x.float()[:, None]])
def test_single_logits_become_two_classes(shape, convert):
    single, target = torch.randn(shape), convert(TARGET % 2)
    for source in (LogitSource(binary=True), LogitSource(lambda *args: (single, target), binary=True)):
        rows, classes, *_ = source.extract({"logits": single}, (LOGITS, target), NOTHING)
        torch.testing.assert_close(rows.softmax(1)[:, 1], single.flatten().sigmoid(), rtol=1e-6, atol=0)
        assert torch.equal(classes, TARGET % 2)
    found = LogitSource(binary=True).extract(single, (LOGITS, target[:3]), NOTHING)
    assert found.target is None
    assert found.misfit.startswith("expected targets of shape")


def test_a_target_that_does_not_fit_costs_only_what_needs_it():
    for batch in ((LOGITS, LOGITS.softmax(1)), {"x": LOGITS, "labels": torch.tensor(3)}):
        found = LogitSource().extract(LOGITS, batch, NOTHING)
        assert found.rows.equal(LOGITS)
        assert found.target is None
        assert found.misfit.startswith("expected ")
    assert LogitSource().extract(LOGITS, (LOGITS, TARGET, TARGET), NOTHING).target is None
    for target in (1, lambda outputs, batch, module: batch[1]):
        assert LogitSource(target=target).extract(LOGITS, (LOGITS, TARGET, 3), NOTHING).target is TARGET
    for batch in ({"x": LOGITS, "category": TARGET[:, None]}, SimpleNamespace(category=TARGET)):
        assert LogitSource(target="category").extract(LOGITS, batch, NOTHING).target.equal(TARGET)
    found = LogitSource(target="category").extract(LOGITS, {"label": TARGET}, NOTHING)
    assert found.misfit.startswith("expected a target 'category', got a dict with 'label'")


def test_copies_and_files_of_a_hooked_module_have_no_trace_of_it(tmp_path):
    """A snapshot in a step: the hook holds logits with a gradient, and its class is not known elsewhere."""
    module, copies = Classifier(gives="loss"), []

    def snapshot(loss):
        copies.append(copy.deepcopy(module.model))
        torch.save(module.model, tmp_path / "model.pt")
        return loss

    step = module._step
    module._step = lambda batch: snapshot(step(batch))
    callback = BoCCallback(logits="model", every_n_train_steps=1)
    trainer(tmp_path, callback).fit(module, loader(VAL), loader(VAL))
    assert b"torch_boc" not in (tmp_path / "model.pt").read_bytes()
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    for model in (copies[-1], loaded):
        torch.testing.assert_close(model(VAL.tensors[0]), model[2](model[1](model[0](VAL.tensors[0]))))
