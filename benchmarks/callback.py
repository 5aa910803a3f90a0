"""Time `trainer.validate` with and without the callback: `python -m benchmarks.callback`.

torchvision's ResNet-18 at 64 × 64, both in turns. Writes results/callback.csv; the hooks of the callback should take at
most 0.3 % of an epoch, and 0.5 % with an OOD loader.
Two epochs of the same kind differ by more than that on a shared machine, so the time inside the callback's own hooks,
the best epoch's, is written beside the ratio of whole epochs.
"""

import argparse
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import resnet18

from benchmarks.harness import RESULTS, best_times, ratio, target, write_csv
from torch_boc.lightning import BoCCallback

# The most that the hooks may take of an epoch.
LIMITS = {"BoCCallback": 0.003, "with ood": 0.005}
OPTIONS: dict[str, dict[str, Any]] = {"BoCCallback": {}, "with ood": {"ood": {1: "noise"}}}
LIMITS = {"BoCCallback": 0.003, "with ood": 0.005}


class Clocked(BoCCallback):
    """The callback, and the least time that an epoch spent in its hooks."""

    best = float("inf")
    spent = 0.0

    def __getattribute__(self, name: str) -> Any:
        """Hooks with a clock around them."""
        value = super().__getattribute__(name)
        return self._clocked(value) if name.startswith("on_") else value

    def _clocked(self, hook: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any, **kwargs: Any) -> None:
            start = time.perf_counter()
            hook(*args, **kwargs)
            self.spent += time.perf_counter() - start

        return run

    def finish(self) -> None:
        """Keep the epoch's time if it is the best so far."""
        self.best, self.spent = min(self.best, self.spent), 0.0


class Classifier(pl.LightningModule):
    """What is validated: one forward pass a batch."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.model = resnet18(num_classes=classes)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> dict[str, torch.Tensor]:
        """The logits."""
        return {"logits": self.model(batch[0])}


def epochs(classes: int, batch: int, batches: int) -> tuple[dict[str, Callable[[], object]], dict[str, Clocked]]:
    """An epoch of two loaders for each contestant, and the callbacks in them."""
    torch.manual_seed(0)
    module = Classifier(classes)
    samples = batch * batches // 2
    data = TensorDataset(torch.randn(samples, 3, 64, 64), torch.randint(classes, (samples,)))
    loaders = [DataLoader(data, batch_size=batch) for _ in range(2)]
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    callbacks = {name: Clocked(**options) for name, options in OPTIONS.items()}

    def epoch(callback: Clocked | None) -> Callable[[], None]:
        trainer = pl.Trainer(callbacks=[callback] if callback else [], **quiet)

        def run() -> None:
            trainer.validate(module, loaders, verbose=False)
            if callback:
                callback.finish()

        return run

    return {"bare": epoch(None)} | {name: epoch(callback) for name, callback in callbacks.items()}, callbacks


def measure(classes: int, batch: int, batches: int, seconds: float) -> list[dict[str, object]]:
    """The rows of the table for one number of classes."""
    contestants, callbacks = epochs(classes, batch, batches)
    best = best_times(contestants, seconds=seconds)
    rows = []
    for name, callback in callbacks.items():
        setting = f"{classes} classes, batches of {batch}"
        whole, inside = ratio(best, name, "bare"), callback.best / best["bare"]
        shares = {f"{name} / bare epoch": (whole, 1.01), f"inside {name}'s hooks / bare epoch": (inside, LIMITS[name])}
        for label, (share, limit) in shares.items():
            row = target(f"{label}, {setting}", share, limit)
            rows.append(row | {"measured": round(share, 4), "bare epoch ms": round(1e3 * best["bare"], 1)})
    return rows


def main() -> None:
    """Run, print the target, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--dry", action="store_true", help="write no table")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    rows = []
    for classes in (10, 1000):
        rows += measure(classes, 64, args.batches, args.seconds)
    if not args.dry:
        write_csv(RESULTS / "callback.csv", rows)


if __name__ == "__main__":
    main()
