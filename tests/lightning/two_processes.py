"""What `test_distributed.py` runs in two processes: `python -m tests.lightning.two_processes folder`.

Both libraries run in the same two processes, one after the other, because starting processes takes longer than the
runs. The first process gets most of the samples and all of the far ones; the second must log the same all the same.
"""

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset, TensorDataset

from tests.lightning.cases import LIBRARIES, classifier, loader, perceptron, points
from torch_boc import ConformalTest
from torch_boc.lightning import BoCCallback, BoCPredictionWriter

MARK = "library: "
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


class Failing:
    """A logits function of both processes; the second cannot read loader 0, nor the first batch of loader 1.

    It finds out about loader 2 when results are asked for, as it does about probabilities on a device.
    """

    def __init__(self, rank: int) -> None:
        self.rank, self.calls, self.callback = rank, 0, None

    def __call__(self, outputs: Any, batch: Any, module: Any) -> Any:
        """Fail at the first batches of the second process."""
        self.calls += 1
        if self.rank == 1 and self.calls <= 3:  # of two batches of loader 0
            self.callback._loops["val"].metrics[2].metric._looks_like_probabilities = torch.tensor(True)
            raise KeyError("heatmap")
        return outputs["logits"], batch[1]


def validate_with_failures(library: Any, folder: Path, module: Any) -> None:
    """Save what each process logs of an epoch in which one of them cannot read everything."""
    callback = BoCCallback(ood=OOD, keys=("samples", "gap", "nll"), plot_every_n_epochs=1, test=True)
    run = trainer(library, folder / "failures", callback, use_distributed_sampler=False, logger=False)
    failing = Failing(run.global_rank)
    failing.callback, callback._source.logits = callback, failing
    shares = [share(*part) for part in zip((KNOWN, NEAR, FAR), SHARES[run.global_rank], strict=True)]
    run.validate(module, shares, verbose=False)
    torch.save(dict(run.callback_metrics), folder / f"failures-{run.global_rank}.pt")


def fit_with_failures(library: Any, folder: Path, module: Any) -> None:
    """Train while the second process can read no training batch and the first no validation batch."""

    def logits(outputs: Any, batch: Any, module: Any) -> Any:
        if module.training == (module.global_rank == 1):
            return outputs["logits"], batch[1]
        raise KeyError("heatmap")

    callback = BoCCallback(logits=logits, keys=("samples", "gap"), every_n_train_steps=1)
    options = {"max_epochs": 2, "logger": False, "enable_checkpointing": False}
    run = trainer(library, folder, callback, **options)
    run.fit(module, loader(KNOWN, 4), loader(NEAR, 4))
    torch.save(dict(run.callback_metrics), folder / f"failing-fit-{run.global_rank}.pt")


def main(folder: Path) -> None:
    """Run both libraries; a line on stderr says which messages are of which."""
    for name, library in LIBRARIES.items():
        if dist.is_initialized():
            dist.barrier()  # both processes have said everything about the other library
        sys.stderr.write(f"{MARK}{name}\n")
        sys.stderr.flush()
        (folder / name).mkdir(exist_ok=True)
        work(library, folder / name)


def work(library: Any, folder: Path) -> None:
    """Validate uneven shares, train an epoch, predict; each process saves what it logged."""
    module = classifier(library, perceptron())
    module.allow_zero_length_dataloader_with_multiple_devices = True
    callbacks = (
        BoCCallback(ood=OOD, keys=("samples", "gap", "accuracy"), plot_every_n_epochs=1),
        BoCCallback(ood=OOD, keys=("gap",), prefix="binned", thresholds=2**12, logits="model.2"),
        BoCCallback(ood=OOD, keys=("gap",), prefix="tested", test=ConformalTest("msp"), alpha=0.1),
        BoCCallback(ood=OOD, keys=("gap",), prefix="grouped", test=ConformalTest(groups="prediction"), alpha=0.3),
    )
    options = {"enable_checkpointing": False, "logger": library.loggers.CSVLogger(folder)}
    run = trainer(library, folder, *callbacks, use_distributed_sampler=False, **options)
    shares = SHARES[run.global_rank]
    run.validate(module, [share(*part) for part in zip((KNOWN, NEAR, FAR), shares, strict=True)], verbose=False)
    torch.save(dict(run.callback_metrics), folder / f"validate-{run.global_rank}.pt")
    torch.save([x.test.state_dict() for x in callbacks[2:]], folder / f"tests-{run.global_rank}.pt")

    writer = BoCPredictionWriter(folder / "predictions")
    trainer(library, folder, writer, **options).predict(module, loader(KNOWN, 4), return_predictions=False)

    validate_with_failures(library, folder, module)

    keep = library.callbacks.ModelCheckpoint(folder, monitor="val/boc/nll", filename="best")
    run = trainer(library, folder, BoCCallback(every_n_train_steps=2), keep, max_epochs=1, logger=False)
    run.fit(module, loader(KNOWN, 4), loader(NEAR, 4))
    found = {"score": keep.best_model_score, **run.callback_metrics}
    torch.save(found, folder / f"fit-{run.global_rank}.pt")
    fit_with_failures(library, folder, module)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
