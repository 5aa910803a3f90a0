"""Targets that are ignored or no classes, and classifiers with a single logit."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.lightning.cases import (
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
    trainer,
)
from torch_boc import BoCMetric, BoCSeparation
from torch_boc.lightning import BoCCallback
from torch_boc.lightning.loop import LoopMetrics

pytestmark = QUIET


def with_labels(data, *places, value):
    target = data.tensors[1].clone()
    target[list(places)] = value
    return TensorDataset(data.tensors[0], target)


@pytest.mark.parametrize("keys", [("gap",), None])
def test_labels_that_cross_entropy_ignores(keys, tmp_path):
    module = classifier(LIBRARIES["lightning"], perceptron())
    run = trainer(LIBRARIES["lightning"], tmp_path, BoCCallback(keys=keys))
    run.fit(module, loader(TRAIN), loader(with_labels(VAL, 0, 5, 20, value=-100)))
    kept = [place for place in range(37) if place not in (0, 5, 20)]
    want = expected(module, TensorDataset(*(x[kept] for x in VAL.tensors)))
    for key in keys or ("gap", "nll", "ece_confidence"):
        assert run.callback_metrics[f"val/boc/{key}"].item() == pytest.approx(want[key])


def labels_of_255(module):
    """As void pixels often have, with a loss that knows."""
    module._step = lambda batch: {"logits": module(batch[0])}
    return loader(with_labels(VAL, 0, 5, value=255))


def test_labels_that_are_no_classes_do_not_matter_where_nobody_asks_for_targets(tmp_path):
    module = classifier(LIBRARIES["lightning"], perceptron())
    run = trainer(LIBRARIES["lightning"], tmp_path, BoCCallback(keys=("gap", "samples")))
    run.validate(module, labels_of_255(module), verbose=False)
    assert run.callback_metrics["val/boc/samples"] == 37
    assert run.callback_metrics["val/boc/gap"].item() == pytest.approx(expected(module, VAL)["gap"])


def test_labels_that_are_no_classes_leave_what_needs_none(tmp_path):
    module = classifier(LIBRARIES["lightning"], perceptron())
    run = trainer(LIBRARIES["lightning"], tmp_path, BoCCallback(plot_every_n_epochs=1))
    with pytest.warns(UserWarning, match=f"{SAID} .*targets in .* got 2 outside; give .* ignore_index") as said:
        run.validate(module, labels_of_255(module), verbose=False)
    assert len(ours(said)) == 2  # the values and the figure
    assert run.callback_metrics["val/boc/gap"].item() == pytest.approx(expected(module, VAL)["gap"])
    assert "val/boc/nll" not in run.callback_metrics
    assert not list(tmp_path.glob("*.png"))
    with pytest.raises(ValueError, match=r"expected targets in \[0, 5\), got 2 outside"):
        trainer(LIBRARIES["lightning"], tmp_path, BoCCallback(on_error="raise")).validate(module, labels_of_255(module))


def test_only_ignored_labels_are_said(tmp_path):
    module = classifier(LIBRARIES["lightning"], perceptron())
    data = with_labels(VAL, *range(37), value=-100)
    module._step = lambda batch: {"logits": module(batch[0])}
    run = trainer(LIBRARIES["lightning"], tmp_path, BoCCallback())
    with pytest.warns(UserWarning, match=f"{SAID} val: .*every target is ignore_index, -100; ignore_index=None"):
        run.validate(module, loader(data), verbose=False)
    assert not run.callback_metrics
    run = trainer(LIBRARIES["lightning"], tmp_path, BoCCallback(ignore_index=None, keys=("gap",)))
    run.validate(module, loader(data), verbose=False)
    assert run.callback_metrics["val/boc/gap"].item() == pytest.approx(expected(module, VAL)["gap"])


@pytest.mark.parametrize("ood", [set(), {1}])
def test_a_loader_may_use_the_memory_of_its_targets_again(ood):
    loop, target = (
        LoopMetrics(["", "other"], ood, BoCMetric(), BoCSeparation(("msp",))),
        torch.zeros(16, dtype=torch.long),
    )
    for batch in range(5):
        target.fill_(batch)
        loop.update(0, torch.eye(5)[target] * 4, target)
        loop.update(1, torch.eye(5)[target] * 4, target)
    assert loop.compute(("accuracy",))["accuracy"] == 1


def single_logit(library):
    """A binary classifier as people write them."""
    module = classifier(library, nn.Sequential(nn.Linear(8, 1)))

    def step(batch):
        logits = module(batch[0])
        loss = nn.functional.binary_cross_entropy_with_logits(logits, (batch[1] > 2).float()[:, None])
        return {"loss": loss, "logits": logits, "labels": (batch[1] > 2).float()}

    module._step = step
    return module


def test_single_logits_are_skipped_with_one_warning(library, tmp_path):
    module, callback = single_logit(library), BoCCallback(every_n_train_steps=1)
    run = trainer(library, tmp_path, callback, max_epochs=2)
    with pytest.warns(UserWarning, match=f"{SAID} a batch of .*binary=True takes a single logit") as said:
        run.fit(module, loader(TRAIN), loader(VAL))
    assert [message.split(":")[0] for message in ours(said)] == [
        f"{SAID} a batch of {stage}" for stage in ("val", "train")
    ]
    assert run.current_epoch == 2
    assert set(run.callback_metrics) == {"val/boc/skipped_batches", "train/boc/skipped_batches"}
    assert run.callback_metrics["val/boc/skipped_batches"] == 3


def test_single_logits_as_two_classes(library, tmp_path):
    module = single_logit(library)
    run = trainer(library, tmp_path, BoCCallback(binary=True, keys=("gap", "nll", "accuracy", "confidence")))
    run.fit(module, loader(TRAIN), loader(VAL))
    with torch.no_grad():
        z, y = module(VAL.tensors[0])[:, 0], (VAL.tensors[1] > 2).float()
    found = {key: run.callback_metrics[f"val/boc/{key}"].item() for key in ("gap", "nll", "accuracy", "confidence")}
    assert found["gap"] == 0
    assert found["nll"] == pytest.approx(nn.functional.binary_cross_entropy_with_logits(z, y).item(), rel=1e-6)
    assert found["accuracy"] == pytest.approx(((z > 0) == y.bool()).float().mean().item())
    assert found["confidence"] == pytest.approx(torch.maximum(z.sigmoid(), 1 - z.sigmoid()).mean().item(), rel=1e-6)
