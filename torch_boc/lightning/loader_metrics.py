"""The loaders of one loop: their names, their metrics, and what becomes of batches that cannot be read."""

import math
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, distributed

from ..core.schema import Counts, Tally
from ..functional.conformal import flagged_share, threshold_rank
from ..functional.per_sample import strided
from ..functional.registry import required_extras
from ..functional.summary import CLASSWISE, LABELLED_KEYS
from ..metrics import BoCMetric, BoCSeparation
from ..metrics.error_policy import ErrorPolicy
from ..metrics.separation import NEGLIGIBLE_ERROR
from ..nn import Acceptance, ConformalTest
from .logit_source import LogitSource

CPU = torch.device("cpu")


def loader_names(trainer: Any, stage: str) -> list[str]:
    """The names of the loaders of a loop, in their order: the keys of a dict, otherwise as Lightning names them.

    Loaders that do not run one after the other (`CombinedLoader` in another mode than "sequential") make one batch
    together, and count as one loader. There are no names before the loaders are known.
    """
    # During `trainer.validate`, `trainer.val_dataloaders` may be those of an earlier fit.
    fitted = trainer.fit_loop.epoch_loop.val_loop
    loop = trainer.test_loop if stage == "test" else trainer.validate_loop if trainer.state.fn == "validate" else fitted
    combined = loop._combined_loader
    if combined is None:
        return []
    if combined._mode != "sequential":
        return ["combined"]
    if isinstance(combined.iterables, Mapping) and len(combined.iterables) == len(combined.flattened):
        return [str(name) for name in combined.iterables]
    return [f"dataloader_idx_{place}" for place in range(len(combined.flattened))]


def match_ood_loaders(ood: Mapping[int | str, str], names: Sequence[str], stage: str) -> tuple[dict[int, str], str]:
    """The names of the out-of-distribution loaders by index, and what is wrong with the others, or "".

    A loader is left out if it is missing or first, or if another loader after the first has the name that it would get.
    Nothing is wrong before the loaders are known.
    """
    # From a file of LightningCLI an index comes as a string; a loader of that name comes first.
    known: dict[int | str, int] = {key: place for place in range(len(names)) for key in (place, str(place))}
    known |= {name: place for place, name in enumerate(names)}
    found = {known[loader]: label for loader, label in ood.items() if loader in known}
    others = {name for place, name in enumerate(names) if place > 0 and place not in found}
    present = {place: label for place, label in found.items() if place > 0 and label not in others}
    wrong = [f"{loader!r} as {label!r}" for loader, label in ood.items() if known.get(loader) not in present]
    loaders = ", ".join(f"{place} {name!r}" for place, name in enumerate(names))
    return present, "" if not (names and wrong) else (
        f"expected ood loaders of {stage} after the in-distribution loader, which is the first, with names of their "
        f"own, got {' and '.join(wrong)}, and {len(names)} loaders in all: {loaders}; give several as a list or a "
        "dict, one after the other (CombinedLoader in mode 'sequential')"
    )


@dataclass(frozen=True)
class LoopConfig:
    """What is measured of a loop, and how.

    Attributes:
        metric: cloned for each loader.
        separation: cloned for the first loader and each out-of-distribution one.
        test: says how samples are scored for a conformal test; None for no test.
        alpha: the level of the test.
        problems: what to do about errors.
        service: the calibrated test whose flags are reported. None to report those of a test that is calibrated with
            the first loader.
        max_error: the error rate at which predictions of the first loader are accepted; None for no acceptance.
        device: where the logits will be.
        group: the processes that have different samples; None for all.
    """

    metric: BoCMetric
    separation: BoCSeparation
    test: ConformalTest | None = None
    alpha: float = 0.05
    problems: ErrorPolicy = field(default_factory=ErrorPolicy)
    service: ConformalTest | None = None
    max_error: float | None = None
    device: torch.device = CPU
    group: Any = None


class LoaderMetrics:
    """The metrics of one loader.

    Args:
        what: the loader in words, for messages.
        probes: what is measured.
        place: its index. The first is in-distribution.
        others: the indices of the out-of-distribution loaders.

    Attributes:
        key: the stage and the index.
        origin: where the logits are from, in words.
        taken: how many batches were read.
        skipped: how many batches could not be read.
        refused: how many errors make all values of the loader unreliable.
        labelled: how many batches have targets.
        misplaced: how many batches have targets that could not be used; then the values about targets are NaN.
        error: why no batch could be read so far.
        ood: whether the samples are out-of-distribution. Their targets do not count.
        tests: the conformal test with the samples, or those with two parts of the samples of the first loader: the
            samples 0, 2, 4, ... of this process are in the first part, however the loader cuts them into batches.
            This and what follows are of all processes after `sample_stats`.
        judges: the same for acceptance, of the first loader only.
        summary: the summary of `BoCMetric`.
        total: the tally behind it.
        apart: how well the loader is separated from the first one; empty if it is not compared.
    """

    def __init__(self, what: str, probes: LoopConfig, place: int, others: Collection[int]) -> None:
        self.what, self.ood, self.problems, self.group = what, place in others, probes.problems, probes.group
        self.key, self.origin = (what.partition(",")[0], place), ""
        self.error: Exception | None = None
        compared = bool(others) and (place == 0 or self.ood)
        parts = 0 if probes.test is None else 1 if place or probes.service is not None else 2
        judges = 2 if place == 0 and probes.max_error is not None else 0
        with torch.inference_mode(False):  # a state that is made in inference mode could not be changed outside
            self.metric = deepcopy(probes.metric).to(probes.device)
            self.separation = deepcopy(probes.separation).to(probes.device) if compared else None
            self.tests = [deepcopy(probes.test).to(probes.device) for _ in range(parts)]  # type: ignore[union-attr]
            self.judges = [Acceptance(validate_args=False).to(probes.device) for _ in range(judges)]
        for metric in filter(None, (self.metric, self.separation)):
            metric.process_group = probes.group
        own = [part.scoring.name for part in (*self.tests, *self.judges)]
        scores = [*(probes.separation.scores if compared else ()), *own]
        self._extras = required_extras(scores)
        self._samples = self.taken = self.skipped = self.refused = self.labelled = self.misplaced = 0
        self.summary: dict[str, Tensor] = {}
        self.total = self.metric.total()
        self.apart: dict[str, Tensor] = {}

    def add(self, source: LogitSource, outputs: Any, batch: Any, module: Any, classes: int | None) -> None:
        """Add a batch. One that cannot be read is skipped, and said as soon as another one of the loader was read."""
        try:
            found = source.extract(outputs, batch, module, loader=self.key, ood=self.ood, classes=classes)
            self.metric.ignore_index, self.metric._first.binary = found.ignore_index, found.binary
            self.update(found.rows, found.target)
        except Exception as error:
            if self.problems.on_error == "raise":
                raise
            self.skipped, self.error = self.skipped + 1, self.error or error
        else:
            self.origin = found.origin
            if found.misplaced and not self.ood:
                self.misplaced += 1
                with self.problems.tolerated(f"the targets of {self.what}"):
                    raise ValueError(f"{found.misplaced}; say which they are: target='key of the batch'")
        if self.taken:
            self.warn_of_error()

    def warn_of_error(self) -> None:
        """Warn of a batch that was skipped."""
        if self.error is not None:
            error, self.error = self.error, None
            self.problems.warn_once(f"a batch of {self.what}: {type(error).__name__}: {error}")

    def update(self, logits: Tensor, target: Tensor | None) -> None:
        """Add a batch, without waiting for the device; its tensors are not needed any more when this returns.

        Args:
            logits: shape (N, ..., C).
            target: class indices of shape (N, ...), or None.
        """
        if self.separation is None and not self.tests and not self.judges:
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
            for parts in (self.tests, self.judges if target is not None else []):
                for number, part in enumerate(parts):
                    start, step = (number - self._samples) % len(parts), len(parts)
                    chosen = strided(stats, start, step)
                    if part.scoring.temperature == 1.0:
                        part.update(chosen)
                    else:
                        part.update(logits[start::step], chosen.counted, dim=-1)
            self._samples += len(logits)
        self.taken, self.labelled = self.taken + 1, self.labelled + (target is not None)

    def sync(self, known: "LoaderMetrics", *, labelled: bool) -> None:
        """Find what all processes together have seen; every process must call it. `known` is the first loader.

        In the summary, values that depend on targets are NaN without `labelled`, or if some targets are not classes.
        """
        # Each process takes part in every exchange, also after an error; otherwise the others would wait for it.
        total, found = self.metric.total(), self.metric.summary()
        with self._refused_on_error():
            with self.metric.sync_context():
                total, found = self.metric.total(), self.metric.summary()
            self.metric._report(Counts(*total.counts).invalid)
        self.total = total
        self.summary = found | {key: torch.full_like(found["gap"], math.nan) for key in LABELLED_KEYS}
        with self.problems.tolerated(f"what the targets of {self.what} decide"):
            if labelled and not self.ood:
                check_targets(self.metric, total)
                self.summary = found
        if self.separation is not None and known.separation is not None and self.ood:
            with self._refused_on_error():
                self.separation.merge_state(known.separation)
            with self._refused_on_error(), warnings.catch_warnings():
                # A process may have seen no batch of a loader that others have seen.
                warnings.filterwarnings("ignore", "The ``compute`` method of metric")
                self.apart = self.separation.compute()
        with self._refused_on_error():
            self.tests = [part.all_reduced(self.group) for part in self.tests]
            self.judges = [part.all_reduced(self.group) for part in self.judges]

    @contextmanager
    def _refused_on_error(self) -> Iterator[None]:
        """Refuse all values of this loader, in all processes, if the block fails in one of them."""
        self.refused += 1
        with self.problems.tolerated(self.what):
            yield
            self.refused -= 1


class LoopMetrics:
    """The metrics of all loaders of a loop, of which the first is in-distribution.

    Args:
        stage: the name of the loop, for messages.
        names: the names of the loaders. The name of the first is not part of any key.
        ood: the names of the out-of-distribution loaders, by their indices. Their targets are not used.
        probes: what is measured.

    Attributes:
        logged: the values of `compute`, or before it those of an earlier epoch.
        worked: the loaders that have given logits in this run.
        test: after `compute`, a test that is calibrated with all samples of the first loader; None if that failed.
        acceptance: the same for acceptance, with samples that have targets.

    >>> loop = LoopMetrics("val", ["first", "second"], {1: "noise"}, LoopConfig(BoCMetric(), BoCSeparation(("msp",))))
    >>> loop.loaders[0].update(torch.tensor([[4.0, 0.0, 1.0]]), torch.tensor([0]))
    >>> loop.loaders[1].update(torch.tensor([[0.1, 0.0, 0.2]]), None)
    >>> {key: round(value.item(), 3) for key, value in loop.compute(("gap", "accuracy")).items()}
    {'gap': 0.031, 'accuracy': 1.0, 'noise/gap': 0.17, 'noise/gap_shift': 0.139,
     'noise/msp_auroc': 1.0, 'noise/msp_fpr95': 0.0}
    """

    def __init__(self, stage: str, names: Sequence[str], ood: Mapping[int, str], probes: LoopConfig) -> None:
        self.stage, self.ood, self.probes = stage, {*ood}, probes
        self.names = [ood.get(place, name) for place, name in enumerate(names)]
        self.loaders = []
        for place, name in enumerate(self.names):
            what = f"{stage}, loader {place} {name!r}" if len(names) > 1 else stage
            self.loaders.append(LoaderMetrics(what, probes, place, self.ood))
        self.test: ConformalTest | None = None
        self.acceptance: Acceptance | None = None
        self.logged: dict[str, Tensor] = {}
        self.worked: set[Any] = set()
        self._reliable: list[int] = []  # the loaders that have values

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
        seen = list(zip(self.loaders, self.check(), strict=True))
        self._reliable = [place for place, (x, n) in enumerate(seen) if not n[2] and self._has_samples(x, n[0])]
        with torch.inference_mode(False):
            if 0 in self._reliable and len(tests := self.loaders[0].tests) == 2:
                self.test = tests[0].clone().merge(tests[1])
            if 0 in self._reliable and (judges := self.loaders[0].judges):
                self.acceptance = judges[0].clone().merge(judges[1])
        result: dict[str, Tensor] = {}
        for place, (loader, (taken, skipped, refused, labelled, misplaced)) in enumerate(seen):
            lost, name = skipped + (taken if refused else 0), self._name(place, "skipped_batches")
            if lost or name in self.logged:
                result[name] = loader.summary["samples"].new_tensor(lost)
            if taken and about_targets and not (labelled or misplaced or loader.ood):
                self.probes.problems.warn_once(
                    f"{', '.join(about_targets)} of {loader.what}: no batch has a target; `keys` without these says "
                    "that none is meant, and target= where they are"
                )
            without = loader.ood or (if_labelled and taken and not labelled)
            if taken + skipped:
                chosen = [key for key in keys if not (without and key in LABELLED_KEYS)]
                values = self._values(place, chosen, partly=bool(misplaced))
                result |= {self._name(place, key): value for key, value in values.items()}
        gone = {key: torch.full_like(value, math.nan) for key, value in self.logged.items() if key not in result}
        self.logged = result | gone
        return self.logged

    def check(self) -> list[list[int]]:
        """Raise in all processes if a loader that never gave logits gave none; every process must call it.

        Returns:
            For each loader how many batches of all processes were taken, skipped, refused, labelled and misplaced.
        """
        counts = [[x.taken, x.skipped, x.refused, x.labelled, x.misplaced] for x in self.loaders]
        batches = torch.tensor(counts, device=self.probes.device)
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(batches, group=self.probes.group)
        counts = batches.tolist()
        for loader, (taken, skipped, *_) in zip(self.loaders, counts, strict=True):
            if taken:
                self.worked.add(loader.key)
            elif skipped and loader.key not in self.worked:
                why = f": {loader.error}" if loader.error else ", as another process says"
                raise TypeError(f"BoCCallback found no logits of {loader.what}{why}") from loader.error
            loader.warn_of_error()
        return counts

    def figures(self, *, draw: bool) -> dict[str, Any]:
        """The figures of all loaders, if `draw` is set; to be called after `compute`.

        In a distributed run, every process must call it, because the figures show the sums of all processes.
        """
        metrics: dict[str, Any] = {self._name(x, "coherence"): self.loaders[x].metric for x in self._reliable}
        metrics |= {self._name(x, "separation"): self.loaders[x].separation for x in self._compared()}
        found = {}
        for name, metric in metrics.items():
            with metric.sync_context(), self.probes.problems.tolerated(f"the figure {self.stage}/{name}"):
                if isinstance(metric, BoCMetric):
                    check_targets(metric, metric.total())
                if draw:
                    found[name] = metric.plot()[0]
        return found

    def _has_samples(self, loader: LoaderMetrics, taken: int) -> bool:
        found = bool(loader.summary["samples"] + loader.summary["invalid"] > 0)  # of all processes
        if taken and not found:
            with self.probes.problems.tolerated(loader.what):
                raise ValueError(
                    f"expected samples, got none in {taken} batches: they are empty, or every target is "
                    f"ignore_index, {loader.metric.ignore_index}; ignore_index=None counts all samples"
                )
        return found

    def _compared(self) -> list[int]:
        return [place for place in self._reliable if place in self.ood and 0 in self._reliable]

    def _values(self, place: int, keys: Sequence[str], *, partly: bool) -> dict[str, Tensor]:
        """The values of a loader; NaN if they cannot be relied on, or about targets that are known `partly`."""
        loader, (gap, known) = self.loaders[place], (self.loaders[x].summary["gap"] for x in (place, 0))
        nan, reliable = torch.full_like(gap, math.nan), place in self._reliable
        unknown = LABELLED_KEYS if partly else ()
        found = {key: loader.summary[key] if reliable and key not in unknown else nan for key in keys}
        if loader.ood:
            scores = self.probes.separation.scores
            found |= {"gap_shift": nan} | {f"{name}_{kind}": nan for name in scores for kind in ("auroc", "fpr95")}
        if place in self._compared():
            found["gap_shift"] = gap - known
            large = {key for key, x in loader.apart.items() if key.endswith("_error") and x > NEGLIGIBLE_ERROR}
            found |= {x: loader.apart[x] for x in loader.apart if x in found or (x in large and x[:-6] in found)}
        if self.probes.test is not None:
            found["flagged"] = nan
            with self.probes.problems.tolerated(f"`{self._name(place, 'flagged')}` of {self.stage}"):
                test = self.probes.service or (self.test if place else loader.tests[0])
                if reliable and test is not None:
                    samples, alpha, tested = test.samples.tolist(), self.probes.alpha, loader.tests[-1]
                    if not any(threshold_rank(number, alpha) for number in samples):
                        got = f"alpha={alpha}, got {sum(samples)}"
                        raise ValueError(f"expected enough held-out samples to flag one at {got}")
                    counts = test.counts.to(self.probes.device)
                    found["flagged"] = flagged_share(counts, tested.counts, alpha, tested.invalid)
        if place == 0 and self.probes.max_error is not None:
            found["accepted"] = nan
            if reliable and bool(loader.judges[0].samples.sum()):
                with warnings.catch_warnings():  # early in a fit nothing can be accepted, and the value says so
                    warnings.filterwarnings("ignore", "nothing can be accepted")
                    found["accepted"] = loader.judges[0].coverage(loader.judges[1], self.probes.max_error)[0]
        return found

    def _name(self, place: int, key: str) -> str:
        return key if place == 0 else f"{self.names[place]}/{key}"


def check_targets(metric: BoCMetric, total: Tally) -> None:
    """Raise if there are targets that are not classes, because the results of the other targets may mislead."""
    metric._report(torch.tensor(0), Counts(*total.counts).bad_targets)
