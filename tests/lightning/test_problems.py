"""A probe that cannot read a batch says so and goes on; what it logs then is not partial in silence."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.lightning.cases import (
    CLASSES,
    LIBRARIES,
    QUIET,
    SAID,
    TRAIN,
    VAL,
    classifier,
    expected,
    loader,
    ours,
    perceptron,
    points,
    trainer,
)
from torch_boc import BoCMetric, BoCSeparation
from torch_boc.lightning import BoCCallback
from torch_boc.lightning.loop import LoopMetrics
from torch_boc.lightning.problems import Problems

pytestmark = QUIET


class Fickle(nn.Module):
    """A classifier that returns a tuple with two tensors in training, as Inception does."""

    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron()

    def forward(self, x):
        logits = self.net(x)
        return (logits, logits) if self.training else logits


def fickle(library):
    module = classifier(library, Fickle(), gives="loss")
    plain = module.forward
    module.forward = lambda x: plain(x)[0] if module.training else plain(x)
    return module


def test_submodule_with_another_output_in_training(library, tmp_path):
    """Nobody asks for the logits of training, so that nothing is wrong."""
    module = fickle(library)
    run = trainer(library, tmp_path, BoCCallback(logits="model"))
    run.fit(module, loader(TRAIN), loader(VAL))
    assert run.callback_metrics["val/boc/gap"].item() == pytest.approx(expected(module, VAL)["gap"])
    assert "val/boc/skipped_batches" not in run.callback_metrics


def test_submodule_with_another_output_in_training_that_is_asked_for(library, tmp_path):
    module = fickle(library)
    run = trainer(library, tmp_path, BoCCallback(logits="model", every_n_train_steps=1), max_epochs=2)
    with pytest.warns(UserWarning, match=f"{SAID} a batch of train: .*'model'.*may be the logits") as said:
        run.fit(module, loader(TRAIN), loader(VAL))
    assert len(ours(said)) == 1
    assert run.callback_metrics["train/boc/skipped_batches"] == 1
    assert "train/boc/gap" not in run.callback_metrics
    assert run.callback_metrics["val/boc/gap"].item() == pytest.approx(expected(module, VAL)["gap"])
    callback = BoCCallback(logits="model", every_n_train_steps=1, on_error="raise")
    with pytest.raises(TypeError, match="may be the logits"):
        trainer(library, tmp_path, callback).fit(fickle(library), loader(TRAIN), loader(VAL))


def test_prediction_is_left_alone(library, tmp_path):
    module = classifier(library, perceptron(), gives="loss")
    run = trainer(library, tmp_path, BoCCallback(logits="no such thing"))
    assert len(run.predict(module, loader(VAL))) == 3


@pytest.mark.parametrize("stage", ["validate", "test", "fit"])
@pytest.mark.parametrize("gives", ["loss", "nothing"])
def test_steps_without_logits_end_no_loop(stage, gives, tmp_path):
    """The sanity check included."""
    module = classifier(LIBRARIES["lightning"], perceptron(), gives="loss")
    if gives == "nothing":
        module.validation_step = module.test_step = lambda batch, batch_idx: None
    run = trainer(LIBRARIES["lightning"], tmp_path, BoCCallback(plot_every_n_epochs=1))
    with pytest.warns(UserWarning, match=f"{SAID} .*return {{'loss': loss, 'logits': logits}} from the step") as said:
        getattr(run, stage)(module, *[loader(TRAIN)] * (stage == "fit"), loader(VAL))
    assert len(ours(said)) == 1
    assert set(run.callback_metrics) == {f"{'test' if stage == 'test' else 'val'}/boc/skipped_batches"}


class Sometimes:
    """A logits function that fails at the given calls."""

    def __init__(self, *places):
        self.places, self.calls = places, 0

    def __call__(self, outputs, batch, module):
        self.calls += 1
        if self.calls - 1 in self.places:
            raise KeyError("heatmap")
        return outputs["logits"], batch[1]


def test_values_beside_skipped_batches_are_those_of_the_others(library, tmp_path):
    module = classifier(library, perceptron(), rate=0.0)
    seen = []

    class Spy(library.Callback):
        def on_validation_end(self, trainer, pl_module):
            seen.append({key: value.item() for key, value in trainer.callback_metrics.items()})

    callback = BoCCallback(logits=Sometimes(1), keys=("samples", "gap"))
    run = trainer(library, tmp_path, callback, Spy(), max_epochs=2, num_sanity_val_steps=0)
    with pytest.warns(UserWarning, match=f"{SAID} a batch of val: KeyError: 'heatmap'") as said:
        run.fit(module, loader(TRAIN), loader(VAL))
    assert len(ours(said)) == 1
    rest = [place for place in range(37) if not 16 <= place < 32]
    for found, data, skipped in ((seen[0], TensorDataset(*(x[rest] for x in VAL.tensors)), 1), (seen[1], VAL, 0)):
        want = expected(module, data)
        assert found["val/boc/samples"] == len(data)
        assert found["val/boc/gap"] == pytest.approx(want["gap"])
        assert found["val/boc/skipped_batches"] == skipped


def test_an_epoch_without_values_does_not_show_those_of_an_earlier_one(library, tmp_path):
    module = classifier(library, perceptron(), rate=0.0)
    callback = BoCCallback(logits=Sometimes(3, 4, 5), keys=("gap",))
    keep = library.callbacks.ModelCheckpoint(tmp_path, monitor="val/boc/gap", save_top_k=1, filename="{epoch}")
    run = trainer(library, tmp_path, callback, keep, max_epochs=2, num_sanity_val_steps=0, enable_checkpointing=True)
    with pytest.warns(UserWarning, match=SAID):
        run.fit(module, loader(TRAIN), loader(VAL))
    assert run.callback_metrics["val/boc/gap"].isnan()
    assert run.callback_metrics["val/boc/skipped_batches"] == 3
    assert "epoch=0" in keep.best_model_path


def test_probabilities_are_refused_whole(tmp_path):
    module = classifier(LIBRARIES["lightning"], nn.Sequential(perceptron(), nn.Softmax(1)))
    run = trainer(LIBRARIES["lightning"], tmp_path, BoCCallback())
    with pytest.warns(UserWarning, match=f"{SAID} a batch of val: ValueError: .*got probabilities") as said:
        run.fit(module, loader(TRAIN), loader(VAL))
    assert len(ours(said)) == 1
    assert set(run.callback_metrics) == {"val/boc/skipped_batches"}


def test_what_is_found_out_late_refuses_the_loader():
    """Probabilities on a device are known when results are asked for; the other loader keeps its values."""
    problems = Problems("warn")
    loop = LoopMetrics(["", "b"], {1}, BoCMetric(), BoCSeparation(("msp",)), problems=problems)
    for place in (0, 1):
        loop.update(place, torch.randn(6, CLASSES), None)
    loop.metrics[1].metric._looks_like_probabilities = torch.tensor(True)
    with pytest.warns(UserWarning, match="goes on without val, loader 1 'b': ValueError: .*got probabilities"):
        found = loop.compute(("gap",))
    assert set(found) == {"gap", "b/skipped_batches"}
    assert set(loop.figures(draw=True)) == {"coherence"}


def test_a_figure_that_cannot_be_drawn_or_sent(tmp_path, monkeypatch):
    module = classifier(LIBRARIES["lightning"], perceptron())
    (tmp_path / "taken").touch()  # no folder can be made here
    monkeypatch.setattr("torch_boc.metrics.BoCMetric.plot", lambda self: 1 / 0)
    callback = BoCCallback(plot_every_n_epochs=1, keys=("gap",))
    run = trainer(LIBRARIES["lightning"], tmp_path, callback)
    with pytest.warns(UserWarning, match=f"{SAID} the figure val/coherence: ZeroDivisionError"):
        run.fit(module, loader(TRAIN), loader(VAL))
    monkeypatch.undo()
    run = trainer(LIBRARIES["lightning"], tmp_path / "taken", BoCCallback(plot_every_n_epochs=1, keys=("gap",)))
    with pytest.warns(UserWarning, match=f"{SAID} the figure val/boc/coherence: .*Error"):
        run.fit(module, loader(TRAIN), loader(VAL))
    assert run.callback_metrics["val/boc/gap"].item() == pytest.approx(expected(module, VAL)["gap"])


@pytest.mark.parametrize("on_error", ["warn", "raise"])
def test_what_is_known_before_training_is_an_error(library, on_error, tmp_path):
    module = classifier(library, perceptron())
    with pytest.raises(ValueError, match="expected the name of a submodule"):
        trainer(library, tmp_path, BoCCallback(logits="modle", on_error=on_error)).fit(
            module, loader(TRAIN), loader(VAL)
        )
    with pytest.raises(ValueError, match="expected keys"):
        BoCCallback(keys=("gapp",), on_error=on_error)
    with pytest.raises(ValueError, match="different prefix for each BoCCallback, got 'boc' twice"):
        trainer(library, tmp_path, BoCCallback(on_error=on_error), BoCCallback()).fit(
            module, loader(TRAIN), loader(VAL)
        )
    assert module.calls == 0


def test_on_error_is_checked():
    with pytest.raises(ValueError, match="expected on_error among warn, raise, got 'ignore'"):
        BoCCallback(on_error="ignore")


def test_interruptions_pass():
    with pytest.raises(KeyboardInterrupt), Problems("warn").tolerated("a batch"):
        raise KeyboardInterrupt


def test_kinds_are_said_once_and_told_apart():
    problems = Problems("warn")
    with warnings.catch_warnings(record=True, action="always") as said:
        for message in ("got 16", "got 7", "found none"):
            with problems.tolerated("a batch"):
                raise ValueError(message)
    assert [str(x.message).split(". ")[0] for x in said] == [
        f"{SAID} a batch: ValueError: {message}" for message in ("got 16", "found none")
    ]


@pytest.mark.parametrize("first_too", [False, True])
def test_other_processes_say_what_the_first_has_not_said(first_too):
    first, other = Problems("warn"), Problems("warn")
    other.rank = 3
    with warnings.catch_warnings(record=True, action="always") as said:
        for problems in (first, other)[not first_too :]:
            with problems.tolerated("a batch"):
                raise ValueError("got 16")
        assert len(said) == first_too
        other.settle(first.said_by_first() + other.said_by_first())
    assert len(said) == 1
    assert str(said[0].message).startswith(f"{'' if first_too else 'process 3: '}{SAID}")


def test_gaps_in_one_loader_leave_the_others(tmp_path):
    """The values of the in-distribution loader do not depend on an out-of-distribution one that cannot be read."""
    module = classifier(LIBRARIES["lightning"], perceptron())
    callback = BoCCallback(logits=Sometimes(3, 4), ood={1: "near"}, keys=("gap",))
    run = trainer(LIBRARIES["lightning"], tmp_path, callback)
    with pytest.warns(UserWarning, match=f"{SAID} a batch of val, loader 1 'near': KeyError"):
        run.validate(module, [loader(VAL), DataLoader(points(20, 3), batch_size=10)], verbose=False)
    assert set(run.callback_metrics) == {"val/boc/gap", "val/boc/near/skipped_batches"}
    assert run.callback_metrics["val/boc/gap"].item() == pytest.approx(expected(module, VAL)["gap"])
