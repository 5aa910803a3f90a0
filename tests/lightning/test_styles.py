"""The bare callback in the ways that people write steps and batches: the numbers are those of plain formulas."""

from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import torchmetrics
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

from tests.lightning.cases import LIBRARIES, QUIET, trainer
from torch_boc.lightning import BoCCallback

pytestmark = QUIET
lightning = LIBRARIES["lightning"]
CLASSES, SAMPLES, BATCH = 5, 37, 16
GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(SAMPLES, 8, generator=GENERATOR), torch.randint(CLASSES, (SAMPLES,), generator=GENERATOR)
LABELLED = ("accuracy", "nll")


def reference(logits, target=None, ignore_index=-100):
    """Mean confidence, dominance, gap, and with targets accuracy and NLL, of rows of logits."""
    rows = logits.detach().double().movedim(1, -1).reshape(-1, logits.shape[1])
    labels = None if target is None else target.reshape(-1)
    if labels is not None:
        rows, labels = rows[labels != ignore_index], labels[labels != ignore_index]
    top, place = rows.max(-1, keepdim=True)
    confidence = rows.softmax(-1).amax(-1).mean()
    dominance = ((top - rows).sigmoid().sum(-1) - 0.5).mean() / (rows.shape[1] - 1)
    found = {"confidence": confidence, "dominance": dominance, "gap": dominance - confidence}
    if labels is not None:
        found["accuracy"] = (place[:, 0] == labels).double().mean()
        found["nll"] = functional.cross_entropy(rows, labels)
    return {key: value.item() for key, value in found.items()}


def network(classes=CLASSES):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, classes))


class Module(lightning.LightningModule):
    """What people write; `step` is one of the styles below."""

    def __init__(self, step, model=None):
        super().__init__()
        self.model = model or network()
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.arange(1.0, CLASSES + 1))
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=CLASSES)
        self.step = step

    def forward(self, x):
        return self.model(x)

    def training_step(self, batch, batch_idx):
        found = self.step(self, batch)
        loss = found["loss"] if isinstance(found, dict) else found[0] if isinstance(found, tuple) else found
        return self.model(X[:2]).sum() if loss is None or loss.ndim else loss

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        return self.step(self, batch)

    test_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


def batches(samples=None, size=BATCH):
    """A loader of (x, y), or of what `samples` makes of a batch."""
    pairs = list(zip(X, Y, strict=True))
    return DataLoader(pairs, batch_size=size, collate_fn=lambda rows: (samples or tuple)(stacked(rows)))


def stacked(rows):
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def logged(module, batch):
    module.log("val_loss", functional.cross_entropy(module(batch[0]), batch[1]))


def loss_and_logits(module, batch):
    logits = module(batch[0])
    return functional.cross_entropy(logits, batch[1]), logits


def features(module, batch):
    inner = module.model[:2](batch[0])
    functional.cross_entropy(module.model[2](inner), batch[1])
    return inner


def by_hand(module, batch):
    return -module(batch[0]).log_softmax(1).gather(1, batch[1][:, None]).mean()


def mixup(module, batch):
    z = module(batch[0])
    return 0.3 * functional.cross_entropy(z, batch[1]) + 0.7 * functional.cross_entropy(z, batch[1].flip(0))


def with_metrics(module, batch):
    z = module.model(batch[0])
    module.accuracy(z, batch[1])
    module.log("acc", module.accuracy)
    loss = module.criterion(z, batch[1])
    module.log("loss", loss)
    return {"loss": loss, "preds": z.argmax(1), "targets": batch[1]}


def metric_only(module, batch):
    module.accuracy.update(module(batch[0]), batch[1])


def two_passes(module, batch):
    with torch.no_grad():
        functional.mse_loss(module(batch[0] * 2), module(batch[0]))
    return functional.cross_entropy(module(batch[0]), batch[1])


STYLES = {
    "logs the loss, returns nothing": logged,
    "returns the loss": lambda module, batch: loss_and_logits(module, batch)[0],
    "returns the logits": lambda module, batch: loss_and_logits(module, batch)[1],
    "returns the logits without a loss": lambda module, batch: module(batch[0]),
    "returns loss and logits": loss_and_logits,
    "returns a dict": lambda module, batch: dict(zip(("loss", "logits"), loss_and_logits(module, batch), strict=True)),
    "returns other things": with_metrics,
    "a weighted loss with smoothing": lambda module, batch: module.criterion(module(batch[0]), batch[1]),
    "log-probabilities": lambda module, batch: functional.nll_loss(module(batch[0]).log_softmax(1), batch[1]),
    "a loss for each sample": lambda module, batch: functional.cross_entropy(
        module(batch[0]), batch[1], reduction="none"
    ).mean(),
    "returns features": features,
    "a loss by hand": by_hand,
    "a metric alone": metric_only,
    "two further passes": two_passes,
    "by keyword": lambda module, batch: functional.cross_entropy(target=batch[1], input=module.model(x := batch[0])),
    "mixup": mixup,
}


def assert_values(values, prefix, want):
    found = {key: values[f"{prefix}{key}"].item() for key in want}
    assert found == pytest.approx(want, rel=1e-5)


def run_of(folder, *, library=lightning, **options):
    return trainer(library, folder, BoCCallback(**options))


@pytest.mark.parametrize("style", STYLES)
def test_styles(style, tmp_path):
    want = reference(network()(X), Y)
    if style == "mixup":
        want = {key: value for key, value in want.items() if key not in LABELLED}
    module, run = Module(STYLES[style]), run_of(tmp_path)
    for stage in ("val", "test"):
        (run.validate if stage == "val" else run.test)(module, batches(), verbose=False)
        assert_values(run.callback_metrics, f"{stage}/boc/", want)
        assert ("nll" in want) == (f"{stage}/boc/nll" in run.callback_metrics)
