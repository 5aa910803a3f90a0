"""Time `trainer.validate` with and without the callback: `python -m benchmarks.callback`.

A ResNet-18 and a ViT-tiny of torchvision whose step logs its loss and returns nothing, all contestants in turns. Writes
results/callback.csv. A whole epoch with the callback should take at most 1.03 of a bare one in batches of 64, and 1.08
in batches of 2, where recording the losses costs most; its time for one call of a torch function is measured, too.
"""

import argparse
import logging
import warnings
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import VisionTransformer, resnet18

from benchmarks.harness import RESULTS, best_times, ratio, target, write_csv
from torch_boc.data import capture_losses
from torch_boc.lightning import BoCCallback

CLASSES, SIZE = 10, 64
MODELS = {
    "ResNet-18": lambda: resnet18(num_classes=CLASSES),
    "ViT-tiny": lambda: VisionTransformer(SIZE, 8, 12, 3, 192, 768, num_classes=CLASSES),
}
LIMITS = {64: 1.03, 2: 1.08}  # by the batch size
OPTIONS: dict[str, dict[str, Any]] = {"BoCCallback": {}, "with an OOD loader": {"ood": {1: "noise"}}}
CALL_LIMIT = 1.0  # microseconds
CALLS = 200  # which fit into the time slice of a busy machine


class Classifier(pl.LightningModule):
    """What is validated: one forward pass and a loss for each batch."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Log the loss."""
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        if dataloader_idx == 0:
            self.log("val/loss", loss, add_dataloader_idx=False)


def epochs(name: str, batch: int, batches: int) -> dict[str, Callable[[], object]]:
    """An epoch of two loaders for each contestant."""
    torch.manual_seed(0)
    module = Classifier(MODELS[name]())
    samples = batch * batches // 2
    data = TensorDataset(torch.randn(samples, 3, SIZE, SIZE), torch.randint(CLASSES, (samples,)))
    loaders = [DataLoader(data, batch_size=batch) for _ in range(2)]
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}

    def epoch(*callbacks: BoCCallback) -> Callable[[], object]:
        trainer = pl.Trainer(accelerator="cpu", callbacks=[*callbacks], **quiet)
        return lambda: trainer.validate(module, loaders, verbose=False)

    return {"bare": epoch()} | {name: epoch(BoCCallback(**options)) for name, options in OPTIONS.items()}


def measure(model: str, batch: int, batches: int, seconds: float) -> list[dict[str, object]]:
    """The rows of the table for one model and batch size."""
    best = best_times(epochs(model, batch, batches), seconds=seconds)
    rows = []
    for name in OPTIONS:
        row = target(f"{name} / bare epoch, {model}, batches of {batch}", ratio(best, name, "bare"), LIMITS[batch])
        rows.append(row | {"bare epoch ms": round(1e3 * best["bare"], 1)})
    return rows


def measure_calls(seconds: float) -> dict[str, object]:
    """The time that the recording adds to a call of a torch function, in microseconds."""
    x, losses = torch.zeros(1), capture_losses()

    def run() -> None:
        for _ in range(CALLS):
            torch.neg(x)

    def recorded() -> None:
        with losses:
            run()

    best = best_times({"plain": run, "recorded": recorded}, seconds=seconds)
    return target(
        "microseconds that capture_losses adds to a call", (best["recorded"] - best["plain"]) / CALLS * 1e6, CALL_LIMIT
    )


def main() -> None:
    """Run, print the targets, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=16, help="of 64 images; eight times as many of 2")
    parser.add_argument("--seconds", type=float, default=90.0, help="for each model and batch size")
    parser.add_argument("--dry", action="store_true", help="write no table")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    rows = [measure_calls(args.seconds / 10) | {"bare epoch ms": ""}]
    for model in MODELS:
        for batch in LIMITS:
            rows += measure(model, batch, args.batches * (8 if batch == 2 else 1), args.seconds)
    if not args.dry:
        write_csv(RESULTS / "callback.csv", rows)


if __name__ == "__main__":
    main()
