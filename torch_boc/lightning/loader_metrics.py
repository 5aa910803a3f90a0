"""The loaders of one loop: their metrics, and how many of their batches could be read."""

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import astuple, dataclass, field
from typing import Any

import torch
from torch import Tensor, distributed

from ..core.schema import Counts
from ..functional.conformal import flagged_share, threshold_rank
from ..functional.registry import required_extras
from ..functional.summary import CLASSWISE, LABELLED_KEYS
from ..metrics import BoCMetric, BoCSeparation
from ..metrics.error_policy import ErrorPolicy
from ..metrics.separation import NEGLIGIBLE_ERROR
from ..nn import Acceptance, ConformalTest
from ..nn.calibration_counts import update_in_turn
from .logit_source import LogitSource

CPU = torch.device("cpu")


@dataclass(frozen=True)
class LoopConfig:
    """What is measured of a loop, and how.

    Attributes:
        metric: cloned for each loader.
        separation: cloned for the first loader and each out-of-distribution one.
        blank_test: how samples are scored for a conformal test; None for no test.
        alpha: the level of the test.
        policy: what to do about errors.
        calibrated_test: the test whose flags are reported; None for one that is calibrated with the first loader.
        max_error: the error rate at which predictions of the first loader are accepted; None for no acceptance.
        device: where the logits will be.
        group: the processes that have different samples; None for all.
    """

    metric: BoCMetric
    separation: BoCSeparation
    blank_test: ConformalTest | None = None
    alpha: float = 0.05
    policy: ErrorPolicy = field(default_factory=ErrorPolicy)
    calibrated_test: ConformalTest | None = None
    max_error: float | None = None
    device: torch.device = CPU
    group: Any = None


@dataclass
class BatchCounts:
    """How many batches of a loader were read, were skipped, have targets, and have targets that cannot be used.

    `refused` counts the errors that make all values of the loader unreliable.
    """

    read: int = 0
    skipped: int = 0
    labelled: int = 0
    misfits: int = 0
    refused: int = 0


class LoaderMetrics:
    """The metrics of one loader.

    Args:
        key: the stage and the index of the loader. The first is in-distribution.
        title: the loader in messages.
        config: what is measured.
        ood: the indices of the out-of-distribution loaders.

    Attributes:
        batches: how many batches of this process were read, skipped, and so on.
        error: the first error that made a batch, or the whole loader, unusable.
        ood: whether the samples are out-of-distribution. Their targets do not count.
        tests: the conformal test with the samples, or those with two halves of the samples of the first loader: the
            samples 0, 2, 4, ... of this process are in the first half, however the loader cuts them into batches.
            This and what follows are of all processes after `sync`.
        acceptances: the same for acceptance, of the first loader only.
        summary: the summary of `BoCMetric`.
        total: the tally behind it.
        detection: AUROC and so on against the first loader; empty if it is not compared.
    """

    def __init__(self, key: tuple[str, int], title: str, config: LoopConfig, ood: Collection[int]) -> None:
        first = key[1] == 0
        self.key, self.title, self.ood, self.policy, self.group = key, title, key[1] in ood, config.policy, config.group
        self.batches, self._samples = BatchCounts(), 0
        self.error: Exception | None = None
        scores = config.separation.scores if ood and (first or self.ood) else ()
        acceptance = Acceptance(validate_args=False) if config.max_error is not None else None

        def copies(number: int, part: Any) -> list[Any]:
            return [deepcopy(part).to(config.device) for _ in range(number if part is not None else 0)]

        with torch.inference_mode(False):  # a state that is made in inference mode could not be changed outside
            self.metric: BoCMetric = copies(1, config.metric)[0]
            self.separation: BoCSeparation | None = copies(1, config.separation)[0] if scores else None
            self.tests = copies(2 if first and config.calibrated_test is None else 1, config.blank_test)
            self.acceptances = copies(2 if first else 0, acceptance)
        for metric in filter(None, (self.metric, self.separation)):
            metric.process_group = config.group
        self._extras = required_extras([*scores, *(x.scoring.name for x in (*self.tests, *self.acceptances))])
        self.summary: dict[str, Tensor] = {}
        self.total = self.metric.total()
        self.detection: dict[str, Tensor] = {}

    def add(self, source: LogitSource, outputs: Any, batch: Any, module: Any) -> None:
        """Add a batch. One that cannot be read is skipped."""
        try:
            extracted = source.extract(outputs, batch, module, loader=self.key, ood=self.ood)
            self.metric.ignore_index, self.metric._first.binary = extracted.ignore_index, extracted.binary
            self.update(extracted.rows, extracted.target)
        except Exception as error:
            if self.policy.on_error == "raise":
                raise
            self.batches.skipped, self.error = self.batches.skipped + 1, self.error or error
        else:
            if extracted.misfit and not self.ood:
                self.batches.misfits += 1
                remedy = "; name the targets: target='key of the batch'"
                self.policy.handle(f"the targets of {self.title}", ValueError(extracted.misfit + remedy))

    def update(self, logits: Tensor, target: Tensor | None) -> None:
        """Add a batch, without waiting for the device; its tensors are not needed any more when this returns.

        Args:
            logits: shape (N, ..., C).
            target: class indices of shape (N, ...), or None.
        """
        if self.separation is None and not self.tests and not self.acceptances:
            self.metric.update(logits, target)
        else:
            stats = self.metric.extract(logits, target, extras=self._extras)  # one pass over the logits serves all
            stats = stats._replace(target=None, distance=None) if self.ood else stats
            if CLASSWISE in (self.metric.keys or ()) and not self.ood:
                self.metric.update(logits, target)  # a second pass
            else:
                self.metric.update(stats)
            if self.separation is not None:
                self.separation.update(stats, self.ood)
            for halves in (self.tests, self.acceptances if target is not None else []):
                if halves:
                    update_in_turn(halves, self._samples, stats)
            self._samples += len(logits)
        self.batches.read += 1
        self.batches.labelled += target is not None

    def sync(self, first: "LoaderMetrics", *, labelled: bool) -> None:
        """Combine what all processes have seen; every process must call it. `first` is the first loader.

        In the summary, values that depend on targets are NaN without `labelled`, or if some targets are not classes.
        """
        self.summary = self.metric.summary()
        try:
            with self.metric.sync_context():
                self.total, self.summary = self.metric.total(), self.metric.summary()
            if self.separation is not None and first.separation is not None and self.ood:
                for loader in (self, first):  # all processes agree on the classes now, and so on an error
                    loader.separation.num_classes = loader.metric.num_classes  # type: ignore[union-attr]
                self.separation.merge_state(first.separation)
                with warnings.catch_warnings():  # a process may have seen no batch of a loader that others have seen
                    warnings.filterwarnings("ignore", "The ``compute`` method of metric")
                    self.detection = self.separation.compute()
            self.tests = [half.all_reduced(self.group) for half in self.tests]
            self.acceptances = [half.all_reduced(self.group) for half in self.acceptances]
            # Each process takes part in every exchange before it reports an error of its own.
            self.metric._report(Counts(*self.total.counts).invalid)
        except Exception as error:
            self.refuse(error)
        if labelled and not self.ood:
            with self.policy.tolerated(f"what depends on the targets of {self.title}"):
                self.metric._report(torch.tensor(0), Counts(*self.total.counts).bad_targets)
                return
        self.summary |= {key: torch.full_like(self.summary["gap"], math.nan) for key in LABELLED_KEYS}

    def refuse(self, error: Exception) -> None:
        """Rely on no value of the loader."""
        self.batches.refused, self.error = 1, error


class LoopMetrics:
    """The metrics of all loaders of a loop, of which the first is in-distribution.

    Args:
        stage: the name of the loop, for messages.
        names: the names of the loaders. The name of the first is not part of any key.
        ood: the names of the out-of-distribution loaders, by their indices. Their targets are not used.
        config: what is measured.

    Attributes:
        logged: the values of `compute`, or before it those of an earlier epoch.
        worked: the loaders that have given logits in this run.
        reliable: after `compute`, the indices of the loaders that have values.
        test: after `compute`, a test that is calibrated with all samples of the first loader; None if that failed.
        acceptance: the same for acceptance, with samples that have targets.

    >>> loop = LoopMetrics("val", ["first", "second"], {1: "noise"}, LoopConfig(BoCMetric(), BoCSeparation(("msp",))))
    >>> loop.loaders[0].update(torch.tensor([[4.0, 0.0, 1.0]]), torch.tensor([0]))
    >>> loop.loaders[1].update(torch.tensor([[0.1, 0.0, 0.2]]), None)
    >>> {key: round(value.item(), 3) for key, value in loop.compute(("gap", "accuracy")).items()}
    {'gap': 0.031, 'accuracy': 1.0, 'noise/gap': 0.17, 'noise/gap_shift': 0.139,
     'noise/msp_auroc': 1.0, 'noise/msp_fpr95': 0.0}
    """

    def __init__(self, stage: str, names: Sequence[str], ood: Mapping[int, str], config: LoopConfig) -> None:
        self.ood, self.config = {*ood}, config
        self.names = [ood.get(index, name) for index, name in enumerate(names)]
        titles = [f"{stage}, loader {i} {name!r}" if len(names) > 1 else stage for i, name in enumerate(self.names)]
        self.loaders = [LoaderMetrics((stage, index), title, config, self.ood) for index, title in enumerate(titles)]
        self.test: ConformalTest | None = None
        self.acceptance: Acceptance | None = None
        self.logged: dict[str, Tensor] = {}
        self.worked: set[Any] = set()
        self.reliable: list[int] = []

    def compute(self, keys: Sequence[str], *, if_labelled: bool = False) -> dict[str, Tensor]:
        """The chosen keys of each loader, with shift, AUROC and FPR95 of each `ood` one, and what the test flags.

        Call it once. In a distributed run, every process must call it, and all get the same values.
        A value that cannot be computed is NaN, because a missing one would end a fit that monitors it. With
        `if_labelled`, keys about targets are left out if no batch has a target. `skipped_batches` is there as soon as a
        batch was skipped. A key that had a value in an earlier epoch and has none now is NaN, because otherwise
        Lightning would continue to show the earlier value.
        """
        about_targets = [key for key in keys if key in LABELLED_KEYS]
        for loader in self.loaders:
            loader.sync(self.loaders[0], labelled=bool(about_targets))
        counts = self.check()
        first, policy = self.loaders[0], self.config.policy
        self.reliable = []
        for index, (loader, n) in enumerate(zip(self.loaders, counts, strict=True)):
            if n.refused:
                continue
            if bool(loader.summary["samples"] + loader.summary["invalid"] > 0):  # of all processes
                self.reliable.append(index)
            elif n.read:
                got = f"none in {n.read} batches: they are empty, or every target is ignore_index"
                remedy = f"{loader.metric.ignore_index}; ignore_index=None counts all samples"
                policy.handle(loader.title, ValueError(f"expected samples, got {got}, {remedy}"))
        if 0 in self.reliable:
            with torch.inference_mode(False):
                both = (first.tests, first.acceptances)
                self.test, self.acceptance = (x[0].clone().merge(x[1]) if len(x) == 2 else None for x in both)
        values: dict[str, Tensor] = {}
        for index, (loader, n) in enumerate(zip(self.loaders, counts, strict=True)):
            start = f"{self.names[index]}/" if index else ""
            part: dict[str, Tensor] = {}
            if n.read and about_targets and not (n.labelled or n.misfits or loader.ood):
                policy.warn_once(
                    f"{', '.join(about_targets)} of {loader.title}: no batch has a target; give `keys` without these, "
                    "or the targets by target="
                )
            if n.read + n.skipped:
                unlabelled = loader.ood or (if_labelled and n.read and not n.labelled)
                chosen = [key for key in keys if not (unlabelled and key in LABELLED_KEYS)]
                part = self._values(index, chosen, unknown=LABELLED_KEYS if n.misfits else ())
            lost = n.skipped + (n.read if n.refused else 0)
            if lost or f"{start}skipped_batches" in self.logged:
                part["skipped_batches"] = loader.summary["samples"].new_tensor(lost)
            values |= {start + key: value for key, value in part.items()}
        gone = {key: torch.full_like(value, math.nan) for key, value in self.logged.items() if key not in values}
        self.logged = values | gone
        return self.logged

    def check(self) -> list[BatchCounts]:
        """Raise in all processes if a loader that never gave logits gave none; every process must call it.

        Returns:
            The counts of each loader, of all processes.
        """
        for loader in self.loaders:
            try:
                loader.metric._first.raise_if_found()  # probabilities, which only a CPU finds at once
            except ValueError as error:
                loader.refuse(error)
        batches = torch.tensor([astuple(loader.batches) for loader in self.loaders], device=self.config.device)
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(batches, group=self.config.group)
        counts = [BatchCounts(*row) for row in batches.tolist()]
        for loader, n in zip(self.loaders, counts, strict=True):
            if n.read and not n.refused:
                self.worked.add(loader.key)
            elif (n.read or n.skipped) and loader.key not in self.worked:
                why = f": {loader.error}" if loader.error else " in another process"
                raise TypeError(f"BoCCallback found no logits of {loader.title}{why}") from loader.error
            if loader.error is not None:
                self.config.policy.handle(f"{'' if n.refused else 'a batch of '}{loader.title}", loader.error)
        return counts

    def _values(self, index: int, keys: Sequence[str], unknown: Collection[str]) -> dict[str, Tensor]:
        """The values of a loader; NaN if they cannot be relied on, or are `unknown`."""
        loader, reliable = self.loaders[index], index in self.reliable
        gap, nan = loader.summary["gap"], torch.full_like(loader.summary["gap"], math.nan)
        values = {key: loader.summary[key] if reliable and key not in unknown else nan for key in keys}
        if loader.ood:
            compared = reliable and 0 in self.reliable
            values["gap_shift"] = gap - self.loaders[0].summary["gap"] if compared else nan
            for key in (f"{name}_{kind}" for name in self.config.separation.scores for kind in ("auroc", "fpr95")):
                values[key] = loader.detection[key] if compared else nan
                error = loader.detection.get(f"{key}_error", nan)
                if compared and error > NEGLIGIBLE_ERROR:
                    values[f"{key}_error"] = error
        if self.config.blank_test is not None:
            values["flagged"] = nan
            test = self.config.calibrated_test or (self.test if index else loader.tests[0])
            if reliable and test is not None:
                samples, alpha, tested = test.samples.tolist(), self.config.alpha, loader.tests[-1]
                if any(threshold_rank(number, alpha) for number in samples):
                    counts = test.counts.to(self.config.device)
                    values["flagged"] = flagged_share(counts, tested.counts, alpha, tested.invalid)
                else:
                    needed = f"expected enough held-out samples to flag one at alpha={alpha}, got {sum(samples)}"
                    self.config.policy.handle(f"`flagged` of {loader.title}", ValueError(needed))
        if index == 0 and self.config.max_error is not None:
            values["accepted"] = nan
            if reliable and bool(loader.acceptances[0].samples.sum()):
                with warnings.catch_warnings():  # early in a fit nothing can be accepted, and the value is 0
                    warnings.filterwarnings("ignore", "nothing can be accepted")
                    values["accepted"] = loader.acceptances[0].coverage(loader.acceptances[1], self.config.max_error)[0]
        return values
