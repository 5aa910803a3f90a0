"""What `test_distributed.py` runs in two processes: `python -m tests.lightning.two_processes library folder`.

The first process gets most of the samples and all of the far ones; the second must log the same all the same.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

from tests.lightning.cases import LIBRARIES, classifier, loader, perceptron, points
from torch_boc.lightning import BoCCallback, BoCPredictionWriter

KNOWN, NEAR, FAR = points(53, 1, 3.0), points(21, 2, 0.5), points(20, 3, 9.0)
OOD = {1: "near", 2: "far"}
SHARES = {0: (range(40), range(3), range(20)), 1: (range(40, 53), range(3, 21), range(0))}


def share(data: TensorDataset, places: range) -> DataLoader:
    """The part of the data that one process sees."""
    return DataLoader(Subset(data, places), batch_size=8)


def trainer(library: Any, folder: Path, *callbacks: Any, **options: Any) -> Any:
    """A Trainer of two processes."""
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    return library.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        default_root_dir=folder,
        callbacks=list(callbacks),
        **quiet | options,
    )


def main(name: str, folder: Path) -> None:
    """Validate uneven shares, train an epoch, predict; each process saves what it logged."""
    library = LIBRARIES[name]
    module = classifier(library, perceptron())
    module.allow_zero_length_dataloader_with_multiple_devices = True
    callbacks = (
        BoCCallback(ood=OOD, keys=("samples", "gap", "accuracy"), plot_every_n_epochs=1),
        BoCCallback(ood=OOD, keys=("gap",), prefix="binned", thresholds=2**12, logits="model.2"),
    )
    options = {"enable_checkpointing": False, "logger": library.loggers.CSVLogger(folder)}
    run = trainer(library, folder, *callbacks, use_distributed_sampler=False, **options)
    shares = SHARES[run.global_rank]
    run.validate(module, [share(*part) for part in zip((KNOWN, NEAR, FAR), shares, strict=True)], verbose=False)
    torch.save(dict(run.callback_metrics), folder / f"validate-{run.global_rank}.pt")

    writer = BoCPredictionWriter(folder / "predictions")
    trainer(library, folder, writer, **options).predict(module, loader(KNOWN, 4), return_predictions=False)

    keep = library.callbacks.ModelCheckpoint(folder, monitor="val/boc/gap", filename="best")
    run = trainer(library, folder, BoCCallback(every_n_train_steps=2), keep, max_epochs=1, logger=False)
    run.fit(module, loader(KNOWN, 4), loader(NEAR, 4))
    found = {"score": keep.best_model_score, **run.callback_metrics}
    torch.save(found, folder / f"fit-{run.global_rank}.pt")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
