"""The probe in the loops of a Lightning Trainer."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ..functional.summary import SHORT_KEYS, check_keys
from ..metrics import BoCMetric, BoCSeparation
from ..plots import new_axes
from .figures import publish
from .libraries import Callback
from .loop import LoopMetrics
from .sources import LogitFunction, LogitSource


class BoCCallback(Callback):
    """Logs the probe over the validation and test sets, as `val/boc/gap` and so on, from the logits the steps make.

    The model is not run again and no logits are kept; a batch costs no wait for the device. The values are those of all
    processes, and EarlyStopping and ModelCheckpoint can monitor them. Further loaders come under their name
    (`val/boc/dataloader_idx_1/gap`, or the key of a dict of loaders).

    Args:
        logits: where they come from. None: what the step returns (the logits, or what `torch_boc.finding.find_logits`
            finds them in). A name such as "model.classifier": what that submodule returns, at its last call in a step.
            A function of (outputs, batch, pl_module): gives logits and targets, or None for these.
        dim: the class axis of the logits; 1 as in cross_entropy, -1 for the tokens of a transformer.
        keys: what to log, among the keys of `torch_boc.functional.boc_summary`. Those about targets need them in the
            step's outputs or the batch: as a pair (x, y), or under target, targets, labels, label,
            y, y_true or ground_truth.
        prefix: what follows `val/`, `test/` and `train/` in the names.
        ood: the out-of-distribution loaders by index, as in {1: "svhn"}, against loader 0. Each adds its label-free
            keys, the shift of the mean gap and AUROC and FPR95 of `scores`, as in `val/boc/svhn/msp_auroc`.
        scores: names in `torch_boc.functional.scores`.
        thresholds: None for AUROC and FPR95 that are exact up to a million samples of a loader, whose scores are kept,
            and binned beyond; a power of two for that many bins from the first sample on, in memory of fixed size, as
            for `BoCSeparation`. What bins may be off by is logged if it exceeds 0.001, as in
            `val/boc/svhn/msp_auroc_error`.
        every_n_train_steps: also log every n-th training batch, as `train/boc/gap`.
        plot_every_n_epochs: also draw the validation set every n epochs, and the test set: to TensorBoard, W&B and
            MLflow loggers, or without any of these to PNG files in the log folder.
        trials, alpha, bins, ignore_index, validate_args: as for `BoCMetric`.

    >>> callback = BoCCallback(logits="model.fc", ood={1: "svhn"})  # for Trainer(callbacks=[callback])
    >>> callback.keys
    ('gap', 'free_gap', 'confidence', 'dominance', 'concentration', 'rejection_rate')
    """

    def __init__(
        self,
        *,
        logits: str | LogitFunction | None = None,
        dim: int = 1,
        keys: Sequence[str] = SHORT_KEYS,
        prefix: str = "boc",
        ood: Mapping[int, str] | None = None,
        scores: Sequence[str] = ("msp", "energy", "gap"),
        thresholds: int | None = None,
        every_n_train_steps: int | None = None,
        plot_every_n_epochs: int | None = None,
        trials: int = 100,
        alpha: float = 0.05,
        bins: int = 15,
        ignore_index: int | None = None,
        validate_args: bool = True,
    ) -> None:
        super().__init__()
        self.keys, self.prefix, self.ood = check_keys(keys), prefix, _places(ood)
        self.every_n_train_steps = _positive("every_n_train_steps", every_n_train_steps)
        self.plot_every_n_epochs = _positive("plot_every_n_epochs", plot_every_n_epochs)
        if plot_every_n_epochs is not None:
            new_axes(1, None)  # better now than at the end of an epoch if matplotlib is missing
        self._source = LogitSource(logits, dim)
        common: dict[str, Any] = {"trials": trials, "validate_args": validate_args}
        self._metric = BoCMetric(bins=bins, alpha=alpha, ignore_index=ignore_index, **common)
        self._separation = BoCSeparation(scores, thresholds, nan_strategy="ignore", **common)
        self._loops: dict[str, LoopMetrics] = {}

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Find the submodule that makes the logits."""
        self._source.attach(pl_module)

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Start from nothing."""
        self._begin("val", pl_module, _names(trainer.num_val_batches, trainer.val_dataloaders))

    def on_test_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Start from nothing."""
        self._begin("test", pl_module, _names(trainer.num_test_batches, trainer.test_dataloaders))

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Add the batch."""
        self._loops["val"].update(dataloader_idx, *self._source.take(outputs, batch, pl_module))

    def on_test_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Add the batch."""
        self._loops["test"].update(dataloader_idx, *self._source.take(outputs, batch, pl_module))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log every n-th batch by itself."""
        every = self.every_n_train_steps
        if every is None or (trainer.fit_loop.total_batch_idx + 1) % every:
            self._source.forget()
            return
        self._begin("train", pl_module, [""])
        self._loops["train"].update(0, *self._source.take(outputs, batch, pl_module))
        self._log("train", pl_module, on_step=True, on_epoch=False)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log what all batches amount to."""
        if not trainer.sanity_checking:
            self._finish("val", trainer, pl_module)

    def on_test_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log what all batches amount to."""
        self._finish("test", trainer, pl_module)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Let go of the model."""
        self._source.detach()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Let go of the model."""
        self._source.detach()

    def _begin(self, stage: str, module: Any, names: list[str]) -> None:
        self._source.attach(module)
        ood = {} if stage == "train" else self.ood
        present = {place: name for place, name in ood.items() if place < len(names)}
        named = [present.get(place, name) for place, name in enumerate(names)]
        if stage not in self._loops or self._loops[stage].loaders != named:
            for place in ood.keys() - present.keys():
                warnings.warn(f"expected ood loader {place} in {stage}, got {len(names)} in all", stacklevel=2)
            self._loops[stage] = LoopMetrics(named, set(present), self._metric, self._separation)
        self._loops[stage].reset(module.device)

    def _finish(self, stage: str, trainer: Any, module: Any) -> None:
        # With equal values the mean over processes changes nothing; without it Lightning warns about every key.
        self._log(stage, module, on_step=False, on_epoch=True, sync_dist=True)
        if not self._plot_due(trainer):
            return
        folder = trainer.log_dir or trainer.default_root_dir  # asks all processes
        for name, figure in self._loops[stage].figures(draw=trainer.is_global_zero).items():
            tag = f"{stage}/{self.prefix}/{name}"
            publish(figure, tag, step=trainer.global_step, loggers=trainer.loggers, folder=folder)

    def _log(self, stage: str, module: Any, **how: bool) -> None:
        values = self._loops[stage].compute(self.keys)
        named = {f"{stage}/{self.prefix}/{key}": value for key, value in values.items()}
        module.log_dict(named, add_dataloader_idx=False, batch_size=1, **how)

    def _plot_due(self, trainer: Any) -> bool:
        every = self.plot_every_n_epochs
        if every is None or trainer.fast_dev_run:
            return False
        return bool(trainer.state.fn != "fit" or (trainer.current_epoch + 1) % every == 0)


def _names(batches: Sequence[Any], loaders: Any) -> list[str]:
    """The names of the loaders: their keys if they are a dict, otherwise as Lightning names them."""
    if isinstance(loaders, Mapping) and len(loaders) == len(batches):
        return [str(name) for name in loaders]
    return [f"dataloader_idx_{place}" for place in range(len(batches))]


def _places(ood: Mapping[int, str] | None) -> dict[int, str]:
    places = dict(ood or {})
    if not all(isinstance(place, int) and place > 0 and isinstance(name, str) for place, name in places.items()):
        raise ValueError(f"expected ood as {{index of a loader: name}} with loader 0 in-distribution, got {ood!r}")
    if len(set(places.values())) < len(places):
        raise ValueError(f"expected a different name for each ood loader, got {ood!r}")
    return places


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise ValueError(f"expected {name} as None or a positive number, got {value}")
    return value
