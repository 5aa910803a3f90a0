"""Small modules of Lightning, and Trainers without noise."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from torch_boc import BoCMetric
from torch_boc.lightning import BoCCallback, _compat

lightning = _compat.lightning()  # under the name that the process has imported
CLASSES = 5
SAID = "BoCCallback skips"

# What Lightning says on this machine, whoever calls it.
QUIET = [
    pytest.mark.filterwarnings(f"ignore:{message}")
    for message in (
        ".*isinstance.treespec, LeafSpec.* is deprecated",
        "The '.*_dataloader' does not have many workers",
        "The number of training batches",
        "Checkpoint directory .* exists and is not empty",
    )
]


def points(count: int, seed: int = 0, spread: float = 1.0) -> TensorDataset:
    """Random vectors with labels."""
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(
        spread * torch.randn(count, 8, generator=generator), torch.randint(CLASSES, (count,), generator=generator)
    )


TRAIN, VAL = points(48, 1), points(37, 2)  # three batches of 16 each
KNOWN, NEAR, FAR = points(61, 1, 3.0), points(25, 2, 0.5), points(33, 3, 9.0)


def loader(data: TensorDataset, batch: int = 16) -> DataLoader:
    """Batches in order; the last is smaller."""
    return DataLoader(data, batch_size=batch)


def perceptron(classes: int = CLASSES) -> nn.Module:
    """Two layers for vectors."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, classes))


class Classifier(lightning.LightningModule):
    """A Lightning module as people write them, whose steps return the loss alone or the "logits" with it."""

    def __init__(self, model: nn.Module | None = None, gives: str = "logits", rate: float = 0.05) -> None:
        super().__init__()
        self.model, self.gives, self.rate = model or perceptron(), gives, rate
        self.calls = 0

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        return self.model(x)

    def _step(self, batch: Any) -> Any:
        logits = self(batch[0])
        loss = nn.functional.cross_entropy(logits.float(), batch[1])
        return {"loss": loss, "logits": logits} if self.gives == "logits" else loss

    def training_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        return self._step(batch)

    validation_step = test_step = training_step

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Tensor:
        return self(batch[0])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.rate)


def trainer(folder: Path, *callbacks: Any, **options: Any) -> Any:
    """A quiet Trainer on one CPU process; without a logger or checkpoints unless asked."""
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    defaults = {"accelerator": "cpu", "devices": 1, "max_epochs": 1, "enable_model_summary": False}
    return lightning.Trainer(default_root_dir=folder, callbacks=list(callbacks), **quiet | defaults | options)


def validated(folder: Path, module: Any, loaders: Any, **options: Any) -> Any:
    """What a callback with these options logs of a validation."""
    run = trainer(folder, BoCCallback(**options))
    run.validate(module, loaders, verbose=False)
    return run.callback_metrics


def logits_of(module: Any, data: TensorDataset) -> Tensor:
    """The logits of all samples, batch by batch as the loaders give them."""
    module.eval()
    with torch.no_grad():
        return torch.cat([module(x) for x, _ in loader(data)])


def expected(module: Any, data: TensorDataset, keys: Any = None, **options: Any) -> dict[str, float]:
    """What the metric says of a data set."""
    metric = BoCMetric(keys=keys, **options)
    metric.update(logits_of(module, data), data.tensors[1])
    return {key: value.item() for key, value in metric.compute().items()}


def chosen(values: Any, prefix: str) -> dict[str, float]:
    """The values under a prefix, without it and without NaN; for `val/boc/` without those of further loaders."""
    named = {key.removeprefix(prefix): float(value) for key, value in values.items() if key.startswith(prefix)}
    return {key: value for key, value in named.items() if "/" not in key and value == value}


def ours(said: Any) -> list[str]:
    """The warnings of the callback, among those of Lightning."""
    return [str(x.message) for x in said if SAID in str(x.message)]


def csv_rows(folder: Path, key: str) -> list[dict[str, str]]:
    """The rows that a CSVLogger wrote, of those with a value of this key."""
    (path,) = folder.rglob("metrics.csv")
    with path.open() as file:
        return [row for row in csv.DictReader(file) if row.get(key)]
