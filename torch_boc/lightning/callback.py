"""The probe in the loops of a Lightning Trainer."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from ..functional.checks import check_names, check_share
from ..functional.summary import DEFAULT_KEYS
from ..metrics import BoCMetric, BoCSeparation
from ..metrics.error_policy import ErrorPolicy
from ..nn import Acceptance, ConformalTest
from ._compat import Callback
from .loader_metrics import LoopConfig, LoopMetrics
from .logit_source import LogitFunction, LogitSource, TargetSource
from .page import History, write_page
from .step import watch_step

STEPS = ("training_step", "validation_step", "test_step")


class BoCCallback(Callback):
    """Logs calibration and coherence over the validation and test sets, as `val/boc/nll`, `val/boc/gap` and so on.

    The module stays unchanged: logits and targets are those that the step's `cross_entropy`, `nll_loss` or
    `binary_cross_entropy_with_logits` gets (`torch_boc.data.capture_losses`). If the step returns logits, or if you
    name a submodule, these are used, with the target, class axis and `ignore_index` of their loss. Without such
    a loss, the logits are the output of the one module called in the step that fits the target. The log states the
    source once in a run.

    The model does not run again, no logits are kept, and the host does not wait for the device in a batch. The values
    are those of all processes together. The values of further loaders are logged under the name of the loader
    (`val/boc/dataloader_idx_1/gap`, or the key of a dict of loaders).

    EarlyStopping and ModelCheckpoint should monitor `val/boc/nll`, or an AUROC such as `val/boc/svhn/msp_auroc` with
    mode="max". Use `val/boc/ece` only together with the accuracy, because an untrained network can be well
    calibrated. Do not monitor the gap or one of its parts: it follows confidence. While confidences are below
    1 / (1 + √(C - 1)), as in early epochs, a rising gap means rising confidence; above, a falling gap does. A network
    that overfits becomes more and more confident, and its gap still falls while its likelihood gets worse.

    If a loader gives no logits at all, the sanity check, or the first validation without one, raises an error with what
    was seen and the remedy. Later the callback never interrupts training: a batch that cannot be read is skipped, with
    one warning in a run for each kind of problem, and counted in `val/boc/skipped_batches`. A target that does not fit
    costs only the values that need one. Values that cannot be relied on are NaN.

    With `conformal_test`, a conformal test is calibrated on the first validation loader in each epoch, which must hold
    in-distribution samples that the network was not trained on. `val/boc/flagged` is the measured FPR: that of a test
    calibrated with the even samples of the first loader, on its odd samples. It should be about `alpha`.
    `val/boc/svhn/flagged` is the detection rate on another loader, of a test calibrated with all samples of the first.
    After the epoch this test is `callback.conformal_test`, for `BoCPredictor` or `BoCClassifier`, and
    `test/boc/flagged` is the share of a test loader that it flags. Scores are counted in 768 KiB for each loader and
    group (twice that for the first loader), in the same pass over the logits. Checkpoints keep the test of the last
    validation before them: `torch.load(path)["callbacks"][callback.state_key]["conformal_test"]` is its state dict.

    With `max_error`, such as 0.01, `val/boc/accepted` is the coverage of selective prediction with at most this error:
    the threshold is from the even samples of the first loader, and the coverage that of its odd samples. It needs
    targets. After the epoch, `callback.acceptance` is an `Acceptance` that is calibrated with all samples of the first
    loader. Its guarantee does not hold if these samples choose the checkpoint.

    With several loaders, Lightning requires the argument `dataloader_idx` in the step, as in
    `def validation_step(self, batch, batch_idx, dataloader_idx=0)`, and renames what the step logs: `val/loss` becomes
    `val/loss/dataloader_idx_0`. `if dataloader_idx == 0: self.log("val/loss", loss, add_dataloader_idx=False)` keeps
    the name. What this callback logs is not renamed.

    Args:
        logits: None to find them, as above. A name such as "model.classifier": what that submodule returns, which must
            be called once in a step. A function of (outputs, batch, pl_module): it returns logits and targets; the
            targets may be None.
        target: None to find it. A key or an index of the batch, or a function of (outputs, batch, pl_module).
        dim: the class axis; 1 as in cross_entropy, -1 for the tokens of a transformer. By default that of the loss.
            Without a loss, the second of (N, C); with more axes, that which the shape of the target implies.
        num_classes: the number of classes, if others are to be refused, such as embeddings.
        binary: take the single logit z of a binary classifier, of shape (N,) or (N, 1), for the two classes (0, z);
            `binary_cross_entropy_with_logits` implies it. The gap of two classes is always 0; confidence, `nll` and
            AUROC are not.
        keys: what to log, among the keys of `BoCMetric`. By default the keys below, the first three where there are
            targets.
        prefix: what follows `val/`, `test/` and `train/` in the names. Each callback of a Trainer needs one of its own.
        prog_bar: which of the keys the progress bar shows.
        ood: the out-of-distribution loaders, which are compared with loader 0: their names by
            index, as {1: "svhn"}, or by key if the loaders come as a dict, as {"svhn_test": "svhn"}. Each adds its keys
            that need no targets, the shift of the mean gap, and AUROC and FPR95 of `scores`, as in
            `val/boc/svhn/msp_auroc`. The targets of its samples are not used; those of pixels and tokens may be
            `ignore_index`.
        scores: names in `torch_boc.functional.scores`. Their AUROC and FPR95 are exact up to a million samples of a
            loader, and binned beyond, as for `BoCSeparation`. The largest possible error of the bins is logged if it
            exceeds 0.001, as in `val/boc/svhn/msp_auroc_error`.
        every_n_train_steps: log every n-th training batch, too, as `train/boc/gap`. If an optimizer calls
            the step several times, as LBFGS does, the last call counts.
        page: write `boc.html` into the log folder after each validation of a fit: the training so far as one
            self-contained page, named after `prefix`. W&B and MLflow loggers get it as an artifact. Checkpoints keep
            its history, so a resumed run continues it.
        on_error: "warn" to skip what fails, as above; "raise" to stop with the error.
        ignore_index: samples with this target do not count; None counts all. "loss" takes that of the loss, or -100.
        conformal_test: True for a `ConformalTest` with its default score, or a `ConformalTest` with arguments of your
            own, whose held-out samples are not used.
        max_error: the largest error rate among accepted predictions; None for no acceptance.
        alpha: the level of `rejection_rate`, as for `BoCMetric`, and of `flagged`.
        trials: as for `BoCMetric`.
        bins: as for `BoCMetric`.

    Attributes:
        results: the values of the last validation or test, by the names that are logged.
        conformal_test: the test of the last validation epoch; it is not calibrated before the first, nor if that
            failed. None without a test.
        acceptance: that of the last validation epoch, or None.

    >>> callback = BoCCallback(ood={1: "svhn"})  # for Trainer(callbacks=[callback])
    >>> callback.keys
    ('accuracy', 'ece', 'nll', 'confidence', 'dominance', 'gap', 'free_gap')
    """

    def __init__(
        self,
        *,
        logits: str | LogitFunction | None = None,
        target: TargetSource | None = None,
        dim: int | None = None,
        num_classes: int | None = None,
        binary: bool = False,
        keys: Sequence[str] | None = None,
        prefix: str = "boc",
        prog_bar: Sequence[str] = (),
        ood: Mapping[int | str, str] | None = None,
        scores: Sequence[str] = ("msp", "energy", "gap"),
        every_n_train_steps: int | None = None,
        page: bool = False,
        on_error: str = "warn",
        trials: int = 100,
        alpha: float = 0.05,
        bins: int = 15,
        ignore_index: int | str | None = "loss",
        conformal_test: bool | ConformalTest | None = None,
        max_error: float | None = None,
    ) -> None:
        super().__init__()
        chosen = DEFAULT_KEYS if keys is None else keys
        metric = BoCMetric(num_classes, keys=chosen, trials=trials, bins=bins, alpha=alpha, dim=-1)
        metric._first.remedy = "name what returns logits, as in BoCCallback(logits='model')"
        self.keys, self.prefix = tuple(metric.keys or ()), prefix
        self.prog_bar = check_names("prog_bar", prog_bar, self.keys) if prog_bar else ()
        if not isinstance(ood, Mapping | None) or len({*(ood or {}).values()}) < len(ood or {}):
            expected = "{index of a loader: name}, as {1: 'svhn'}, or {name of a loader: name}, with different names"
            raise ValueError(f"expected ood as {expected}, got {ood!r}")
        self.ood = dict(ood or {})
        if every_n_train_steps is not None and every_n_train_steps < 1:
            raise ValueError(f"expected every_n_train_steps as None or a positive number, got {every_n_train_steps}")
        self.every_n_train_steps = every_n_train_steps
        self._if_labelled = keys is None
        self._source = LogitSource(
            logits, target, dim, ignore_index=ignore_index, binary=binary, num_classes=num_classes
        )
        separation = BoCSeparation(scores, trials=trials, dim=-1, nan_strategy="ignore")
        self._policy = ErrorPolicy(on_error, "BoCCallback", "; on_error='raise' stops with the error")
        if max_error is not None:
            check_share("max_error", max_error)
        if not isinstance(conformal_test, bool | ConformalTest | None):
            raise TypeError(
                "expected conformal_test as True, False or a torch_boc.ConformalTest, "
                f"got {type(conformal_test).__name__}"
            )
        blank = ConformalTest() if conformal_test is True else conformal_test.clone() if conformal_test else None
        if blank is not None:
            check_share("alpha", alpha)
            blank.reset()
        self._config = LoopConfig(metric, separation, blank, alpha, self._policy, max_error=max_error)
        self.conformal_test = None if blank is None else blank.clone()
        self.acceptance: Acceptance | None = None
        self.results: dict[str, float] = {}
        self._loops: dict[str, LoopMetrics] = {}
        self.page, self._history = page, History()
        self._watches: list[Callable[[], None]] = []

    @cached_property  # Lightning asks in every batch
    def state_key(self) -> str:
        """The name of the callback's state in checkpoints, by its prefix. Lightning refuses two of the same name."""
        return f"{type(self).__qualname__}{{'prefix': {self.prefix!r}}}"

    def state_dict(self) -> dict[str, Any]:
        """The states of the test and of the acceptance, if they are calibrated, and what the page shows."""
        parts = {"conformal_test": self.conformal_test, "acceptance": self.acceptance}
        state = {name: part.state_dict() for name, part in parts.items() if part is not None and part.calibrated}
        return state | ({"page": dict(self._history)} if self._history else {})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the test of a checkpoint, if there is one and this callback has a test. Another prefix leaves it out."""
        if self.conformal_test is not None and "conformal_test" in state_dict:
            self.conformal_test.load_state_dict(state_dict["conformal_test"])
        if self._config.max_error is not None and "acceptance" in state_dict:
            self.acceptance = Acceptance(validate_args=False)
            self.acceptance.load_state_dict(state_dict["acceptance"])
        self._history = dict(state_dict.get("page", {})) if self.page else {}

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begin a run."""
        self.teardown(trainer, pl_module, stage)  # of a run that was interrupted
        self._loops = {}
        self._policy.kinds.clear()
        watch = partial(self._watch, trainer, pl_module)
        self._watches = [watch_step(trainer.strategy, step, watch) for step in STEPS]

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Find the submodule that makes the logits."""
        self._source.attach(pl_module)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Check the out-of-distribution loaders, if the sanity check has not done so."""
        if wrong := match_ood_loaders(self.ood, loader_names(trainer), "val")[1]:
            raise ValueError(wrong)

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Forget all earlier samples."""
        self._begin(trainer, pl_module)

    on_test_epoch_start = on_validation_epoch_start

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Add the batch."""
        loop = self._loops[trainer.state.stage.dataloader_prefix]
        loop.loaders[dataloader_idx].add(self._source, outputs, batch, pl_module)

    on_test_batch_end = on_validation_batch_end

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log the values of all batches together."""
        stage = trainer.state.stage.dataloader_prefix
        loop = self._loops[stage]
        if trainer.sanity_checking:
            loop.check()
            return
        # All processes have the same values, so their mean is the same; without it Lightning warns about every key.
        self.results = self._log(stage, pl_module, on_step=False, on_epoch=True, sync_dist=True)
        if stage == "val":
            # Without a new test, none that belongs to earlier weights is kept.
            blank = self._config.blank_test
            self.conformal_test = loop.test or (None if blank is None else blank.clone())
            self.acceptance = loop.acceptance
            if self.page and trainer.state.fn == "fit":
                with self._policy.tolerated("the page"):
                    write_page(loop, self._history, trainer, pl_module, self.prefix)

    on_test_epoch_end = on_validation_epoch_end

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log the values of every n-th batch, each batch by itself. The first one shows whether there are logits."""
        if not self._is_read(trainer):
            self._source.forget()
            return
        self._begin(trainer, pl_module)
        loop = self._loops["train"]
        loop.loaders[0].add(self._source, outputs, batch, pl_module)
        if (trainer.fit_loop.total_batch_idx + 1) % self.every_n_train_steps:
            loop.check()
            return
        # Lightning's logger would repeat the values under later steps.
        values = self._log("train", pl_module, on_step=True, on_epoch=False, logger=False)
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.fit_loop.epoch_loop._batches_that_stepped)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the model and the strategy as they were."""
        self.teardown(trainer, pl_module, "")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Leave the model and the strategy as they were."""
        while self._watches:
            self._watches.pop()()
        self._source.detach()

    def _is_read(self, trainer: Any) -> bool:
        every = self.every_n_train_steps
        first = "train" not in self._loops
        return every is not None and (first or (trainer.fit_loop.total_batch_idx + 1) % every == 0)

    def _watch(self, trainer: Any, module: Any, *args: Any) -> AbstractContextManager[Any]:
        """What a step runs in: (batch, batch index, loader index)."""
        stage = trainer.state.stage.dataloader_prefix
        if callable(self._source.logits) or (stage == "train" and not self._is_read(trainer)):
            return nullcontext()
        key = (stage, args[2] if len(args) > 2 else 0)
        return self._source.watch(module, key, wrapped=trainer.strategy.model is not module)

    def _begin(self, trainer: Any, module: Any) -> None:
        stage = trainer.state.stage.dataloader_prefix
        self._source.attach(module)
        names, ood = ([""], {}) if stage == "train" else (loader_names(trainer), self.ood)
        present, wrong = match_ood_loaders(ood, names, stage)
        if wrong and trainer.sanity_checking:
            raise ValueError(wrong)
        if wrong:
            self._policy.handle(f"some ood loaders of {stage}", ValueError(wrong))
        test = self.conformal_test if stage == "test" else None
        if test is not None and not test.calibrated:
            test = None
            self._policy.warn_once(
                f"`test/{self.prefix}/flagged`: the test has no held-out samples; call trainer.validate before, or "
                "give trainer.test(ckpt_path=...) a checkpoint of a fit with this callback"
            )
        # If several processes work on each sample, only those of one group have different samples.
        mesh = module.device_mesh
        group = None if mesh is None else mesh["data_parallel"].get_group()
        options: dict[str, Any] = {"device": module.device, "group": group, "calibrated_test": test}
        if stage != "val":
            options |= {"max_error": None, "blank_test": None if test is None else self._config.blank_test}
        earlier = self._loops.get(stage)
        self._loops[stage] = LoopMetrics(stage, names, present, replace(self._config, **options))
        if earlier is not None:
            self._loops[stage].logged, self._loops[stage].worked = earlier.logged, earlier.worked

    def _log(self, stage: str, module: Any, **options: bool) -> dict[str, float]:
        values = self._loops[stage].compute(self.keys, if_labelled=self._if_labelled)
        start = f"{stage}/{self.prefix}/"
        with self._policy.tolerated(f"the log of {stage}"):
            for key, value in values.items():
                shown = {"prog_bar": key in self.prog_bar, "add_dataloader_idx": False, "batch_size": 1}
                module.log(start + key, value, **shown, **options)
        return {start + key: float(value) for key, value in values.items()}


def loader_names(trainer: Any) -> list[str]:
    """The names of the loaders of a loop, in their order: the keys of a dict, otherwise as Lightning names them.

    Loaders that do not run one after the other (`CombinedLoader` in another mode than "sequential") make one batch
    together, and count as one loader. There are no names before the loaders are known.
    """
    combined = trainer._evaluation_loop._combined_loader  # `trainer.val_dataloaders` may be those of an earlier fit
    if combined is None:
        return []
    if combined._mode != "sequential":
        return ["combined"]
    if isinstance(combined.iterables, Mapping) and len(combined.iterables) == len(combined.flattened):
        return [str(name) for name in combined.iterables]
    return [f"dataloader_idx_{index}" for index in range(len(combined.flattened))]


def match_ood_loaders(ood: Mapping[int | str, str], names: Sequence[str], stage: str) -> tuple[dict[int, str], str]:
    """The names of the out-of-distribution loaders by index, and what is wrong with the others, or "".

    A loader is left out if it is missing or first, or if another loader after the first has the name that it would get.
    Nothing is wrong before the loaders are known.
    """
    # From a file of LightningCLI an index comes as a string; a loader of that name comes first.
    indices: dict[int | str, int] = {key: index for index in range(len(names)) for key in (index, str(index))}
    indices |= {name: index for index, name in enumerate(names)}
    labels = {indices[loader]: label for loader, label in ood.items() if loader in indices}
    others = {name for index, name in enumerate(names) if index > 0 and index not in labels}
    present = {index: label for index, label in labels.items() if index > 0 and label not in others}
    wrong = [f"{loader!r} as {label!r}" for loader, label in ood.items() if indices.get(loader) not in present]
    loaders = ", ".join(f"{index} {name!r}" for index, name in enumerate(names))
    return present, "" if not (names and wrong) else (
        f"expected ood loaders of {stage} after the in-distribution loader, which is the first, with names of their "
        f"own, got {' and '.join(wrong)}, and {len(names)} loaders in all: {loaders}; give several as a list or a "
        "dict, one after the other (CombinedLoader in mode 'sequential')"
    )
