"""What to monitor: the likelihood and the calibration error tell that a network overfits, the gap does not."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.lightning.cases import CLASSES, LIBRARIES, QUIET, chosen, classifier, expected, loader, points, trainer
from torch_boc.functional.summary import SHORT_KEYS
from torch_boc.lightning import BoCCallback

pytestmark = QUIET
library = LIBRARIES["lightning"]
EPOCHS = 30


def noisy(count, seed):
    """Points of five classes that overlap, so that there is something to learn and much to learn by heart."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(CLASSES, (count,), generator=generator)
    return TensorDataset(torch.randn(count, 8, generator=generator) + torch.eye(CLASSES, 8)[target], target)


def overfit(folder, monitor):
    """Train a network that is far too large for its data: the course of what was logged, and the number of epochs."""
    torch.manual_seed(0)
    module = classifier(library, nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, CLASSES)))
    module.configure_optimizers = lambda: torch.optim.Adam(module.parameters(), lr=0.01)
    course = []

    class Spy(library.Callback):
        def on_validation_end(self, trainer, pl_module):
            course.append({key: value.item() for key, value in trainer.callback_metrics.items()})

    stop = library.callbacks.EarlyStopping(monitor, patience=5)
    run = trainer(library, folder, BoCCallback(), Spy(), stop, max_epochs=EPOCHS, num_sanity_val_steps=0)
    run.fit(module, loader(noisy(64, 1)), loader(noisy(200, 2), 200))
    return course, run.current_epoch


def test_the_gap_falls_while_the_network_overfits(tmp_path):
    course, epochs = overfit(tmp_path, "val/boc/gap")
    gap, nll, ece = ([values[f"val/boc/{key}"] for values in course] for key in ("gap", "nll", "ece_confidence"))
    assert epochs == EPOCHS  # it never stops
    assert gap[-1] < 0.5 * gap[0]
    assert nll[-1] > 1.3 * min(nll)
    assert ece[-1] > 2 * min(ece)
    best = nll.index(min(nll))
    assert best < EPOCHS / 2
    assert gap[-1] < gap[best]  # and would keep the last network instead of the best


@pytest.mark.parametrize("key", ["nll", "ece_confidence"])
def test_likelihood_and_calibration_stop_it(key, tmp_path):
    course, epochs = overfit(tmp_path, f"val/boc/{key}")
    assert epochs < EPOCHS
    values = [part[f"val/boc/{key}"] for part in course]
    assert min(values) == values[-6]  # five epochs of patience


@pytest.mark.parametrize("stage", ["validate", "test"])
def test_default_keys_depend_on_targets(stage, tmp_path):
    module, data = classifier(library, nn.Linear(8, CLASSES)), points(37, 2)
    prefix = "test/boc/" if stage == "test" else "val/boc/"
    run = trainer(library, tmp_path, BoCCallback())
    getattr(run, stage)(module, loader(data), verbose=False)
    want = expected(module, data)
    keys = (*SHORT_KEYS, "nll", "ece_confidence")
    assert chosen(run.callback_metrics, prefix) == pytest.approx({key: want[key] for key in keys})

    module.validation_step = module.test_step = lambda batch, batch_idx: module(batch[0])
    run = trainer(library, tmp_path, BoCCallback())
    getattr(run, stage)(module, loader(TensorDataset(data.tensors[0])), verbose=False)
    assert chosen(run.callback_metrics, prefix) == pytest.approx({key: want[key] for key in SHORT_KEYS})


def test_keys_that_are_asked_for_are_there_without_targets(tmp_path):
    module = classifier(library, nn.Linear(8, CLASSES))
    module.validation_step = lambda batch, batch_idx: module(batch[0])
    run = trainer(library, tmp_path, BoCCallback(keys=("gap", "nll")))
    run.validate(module, loader(TensorDataset(points(37, 2).tensors[0])), verbose=False)
    assert run.callback_metrics["val/boc/nll"].isnan()


def test_training_batches_have_the_same_keys(tmp_path):
    module, data = classifier(library, nn.Linear(8, CLASSES)), points(32, 2)
    run = trainer(library, tmp_path, BoCCallback(every_n_train_steps=1))
    run.fit(module, loader(data), loader(data))
    assert {"train/boc/nll", "train/boc/ece_confidence"} <= set(run.callback_metrics)
