"""What `test_distributed.py` runs in two processes: `python -m tests.lightning.two_processes folder`.

The first process gets most of the samples and all of the far ones; the second must log the same all the same.
"""

import sys
from pathlib import Path
from typing import Any

import pytorch_lightning  # noqa: F401, the second name of Lightning is tested here
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, Subset, TensorDataset

from tests.lightning.cases import Classifier, lightning, loader, points
from tests.lightning.cases import trainer as one_process
from tests.lightning.test_styles import SHARED_STYLES, STYLES, Module, X, Y
from torch_boc import ConformalTest
from torch_boc.lightning import BoCCallback, BoCPredictionWriter

KNOWN, NEAR, FAR = points(53, 1, 3.0), points(21, 2, 0.5), points(20, 3, 9.0)
OOD = {1: "near", 2: "far"}
SHARES = {0: (range(40), range(3), range(20)), 1: (range(40, 53), range(3, 21), range(0))}


def trainer(folder: Path, *callbacks: Any, **options: Any) -> Any:
    """A Trainer of two processes."""
    return one_process(folder, *callbacks, devices=2, strategy="ddp", **options)


def shares(rank: int) -> list[DataLoader]:
    """The parts of the data that one process sees."""
    parts = zip((KNOWN, NEAR, FAR), SHARES[rank], strict=True)
    return [DataLoader(Subset(data, places), batch_size=8) for data, places in parts]


def save(folder: Path, name: str, run: Any, **more: Any) -> None:
    """Keep what a process has logged."""
    found = {key: x for key, x in run.callback_metrics.items() if "/" in key}  # not what a step logs itself
    torch.save({**found, **more}, folder / f"{name}-{run.global_rank}.pt")


def validate(folder: Path, module: Any) -> None:
    """Validate uneven shares."""
    callbacks = (
        BoCCallback(ood=OOD, keys=("samples", "gap", "accuracy")),
        BoCCallback(ood=OOD, keys=("gap",), prefix="named", logits="model.2"),
        BoCCallback(ood=OOD, keys=("gap",), prefix="tested", conformal_test=ConformalTest("msp"), alpha=0.1),
    )
    run = trainer(folder, *callbacks, use_distributed_sampler=False)
    run.validate(module, shares(run.global_rank), verbose=False)
    save(folder, "validate", run, test=callbacks[2].conformal_test.state_dict())


def validate_together(folder: Path, module: Any) -> None:
    """Both processes work on each sample, as in tensor parallelism."""
    names = ("data_parallel", "tensor_parallel")
    callback = BoCCallback(keys=("samples", "gap"), conformal_test=True, alpha=0.1)
    run = trainer(folder, callback, use_distributed_sampler=False)
    module.on_validation_start = lambda: setattr(
        module, "_device_mesh", init_device_mesh("cpu", (1, 2), mesh_dim_names=names)
    )
    run.validate(module, loader(KNOWN, 8), verbose=False)
    save(folder, "together", run, test=callback.conformal_test.state_dict())
    module._device_mesh, module.on_validation_start = None, lambda: None


def validate_with_failures(folder: Path, module: Any) -> None:
    """The second process cannot read loader 0, nor the first batch of loader 1, and finds out late about loader 2."""
    calls = []

    def failing(outputs: Any, batch: Any, module: Any) -> Any:
        calls.append(batch)
        callback._loops["val"].worked.add(("val", 2))  # in an earlier epoch
        if module.global_rank == 1 and len(calls) <= 3:  # of two batches of loader 0
            callback._loops["val"].loaders[2].metric._first.found = torch.tensor(True)
            raise KeyError("heatmap")
        return outputs["logits"], batch[1]

    callback = BoCCallback(logits=failing, ood=OOD, keys=("samples", "gap", "nll"), conformal_test=True)
    run = trainer(folder / "failures", callback, use_distributed_sampler=False)
    run.validate(module, shares(run.global_rank), verbose=False)
    save(folder, "failures", run)


def fit(folder: Path, module: Any) -> None:
    """Train; in the second callback the second process reads no training batch, and the first no validation batch."""

    def failing(outputs: Any, batch: Any, module: Any) -> Any:
        if module.training == (module.global_rank == 1):
            return outputs["logits"], batch[1]
        raise KeyError("heatmap")

    keep = lightning.callbacks.ModelCheckpoint(folder, monitor="val/boc/nll", filename="best")
    other = BoCCallback(prefix="other", logits=failing, keys=("samples", "gap"), every_n_train_steps=1)
    run = trainer(folder, BoCCallback(every_n_train_steps=2, page=True), other, keep, enable_checkpointing=True)
    run.fit(module, loader(KNOWN, 4), loader(NEAR, 4))
    save(folder, "fit", run, score=keep.best_model_score)


def validate_styles(folder: Path) -> None:
    """The bare callback with the commonest steps, and its error where a step tells nothing."""
    data = TensorDataset(X, Y)
    for number, style in enumerate(SHARED_STYLES):
        run = trainer(folder, BoCCallback(), use_distributed_sampler=False)
        places = (range(30), range(30, 37))[run.global_rank]
        run.validate(Module(STYLES[style]), DataLoader(Subset(data, places), batch_size=8), verbose=False)
        save(folder, f"style{number}", run)
    run = trainer(folder, BoCCallback(), use_distributed_sampler=False)
    silent = Module(lambda module, batch: None)
    silent.validation_step = lambda batch, batch_idx: (
        None if run.global_rank else STYLES[SHARED_STYLES[0]](silent, batch)
    )
    run.validate(silent, loader(data), verbose=False)  # the first process alone finds logits
    try:
        trainer(folder, BoCCallback()).fit(Module(lambda module, batch: None), loader(data), loader(data))
    except TypeError as error:
        (folder / f"error-{run.global_rank}.txt").write_text(str(error))


if __name__ == "__main__":
    target, network = Path(sys.argv[1]), Classifier()
    network.allow_zero_length_dataloader_with_multiple_devices = True
    validate(target, network)
    writer = BoCPredictionWriter(target / "predictions")
    trainer(target, writer).predict(network, loader(KNOWN, 4), return_predictions=False)
    validate_together(target, network)
    validate_with_failures(target, network)
    fit(target, network)
    validate_styles(target)
