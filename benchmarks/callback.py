"""Time `trainer.validate` with and without the callback: `python -m benchmarks.callback`.

torchvision's ResNet-18 at 64 × 64, both in turns. Writes results/callback.csv; the callback should cost at most 1 %.
"""

import argparse
import logging
import warnings
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import resnet18

from benchmarks.harness import RESULTS, best_times, ratio, target, write_csv
from torch_boc.lightning import BoCCallback

CALLBACKS: dict[str, tuple[Callable[[], Any], ...]] = {
    "bare": (),
    "BoCCallback": (BoCCallback,),
    "with ood": (lambda: BoCCallback(ood={1: "noise"}),),
}


class Classifier(pl.LightningModule):
    """What is validated: one forward pass a batch."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.model = resnet18(num_classes=classes)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> dict[str, torch.Tensor]:
        """The logits."""
        return {"logits": self.model(batch[0])}


def epochs(classes: int, batch: int, batches: int) -> dict[str, Callable[[], object]]:
    """An epoch of two loaders for each contestant."""
    torch.manual_seed(0)
    module = Classifier(classes)
    samples = batch * batches // 2
    data = TensorDataset(torch.randn(samples, 3, 64, 64), torch.randint(classes, (samples,)))
    loaders = [DataLoader(data, batch_size=batch) for _ in range(2)]
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    runs = {}
    for name, makers in CALLBACKS.items():
        trainer = pl.Trainer(callbacks=[make() for make in makers], **quiet)
        runs[name] = lambda trainer=trainer: trainer.validate(module, loaders, verbose=False)
    return runs


def main() -> None:
    """Run, print the target, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--dry", action="store_true", help="write no table")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    rows = []
    for classes, batch in ((10, 64), (1000, 64)):
        best = best_times(epochs(classes, batch, args.batches), seconds=args.seconds)
        for name in list(CALLBACKS)[1:]:
            share = ratio(best, name, "bare")
            row = target(f"{name} / bare, {classes} classes, batches of {batch}", share, 1.01)
            rows.append(row | {"measured": round(share, 4), "milliseconds": round(1e3 * best[name], 1)})
    if not args.dry:
        write_csv(RESULTS / "callback.csv", rows)


if __name__ == "__main__":
    main()
