"""The loaders of one loop: their names, their metrics, and what becomes of batches that cannot be read."""

import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed

from ..functional.checks import check_share
from ..functional.conformal import flagged_share, threshold_rank
from ..functional.evidence import every
from ..functional.registry import need_extras
from ..functional.summary import LABELLED_KEYS, summarize
from ..functional.tally import Counts, Tally
from ..metrics import BoCMetric, BoCSeparation
from ..metrics.separation import NEGLIGIBLE_ERROR
from ..nn import ConformalTest

SEVERAL_LOADERS = (
    "with several loaders Lightning wants `dataloader_idx` in the step, `def validation_step(self, batch, batch_idx, "
    "dataloader_idx=0)`, and renames what the step logs, 'val/loss' to 'val/loss/dataloader_idx_0'; "
    "`self.log(..., add_dataloader_idx=False)`, for loader 0 only, keeps the name"
)


def check_ood(ood: Mapping[int | str, str | int] | Sequence[str] | None) -> dict[int | str, str]:
    """The name that each out-of-distribution loader has in the keys, by the index or the name of the loader.

    >>> check_ood({1: "svhn"}), check_ood({"svhn": 1}), check_ood({"svhn_test": "svhn"}), check_ood(["svhn"])
    ({1: 'svhn'}, {1: 'svhn'}, {'svhn_test': 'svhn'}, {'svhn': 'svhn'})
    """
    expected = (
        "expected ood as {index of a loader: name}, as {1: 'svhn'}, or {name: index}, or {name of a loader: name}, or "
        f"a list of names of loaders, with loader 0 in-distribution, got {ood!r}"
    )
    if isinstance(ood, str) or not isinstance(ood, Mapping | Sequence | None):
        raise ValueError(expected)
    given: list[tuple[Any, Any]] = [*ood.items()] if isinstance(ood, Mapping) else [(name, name) for name in ood or ()]
    pairs = [(right, left) if type(right) is int else (left, right) for left, right in given]
    for loader, name in pairs:
        is_place = type(loader) is int and loader >= 0
        if not (is_place or isinstance(loader, str)) or not isinstance(name, str):
            raise ValueError(expected)
        if loader == 0:
            raise ValueError(f"{expected}; loader 0 is the in-distribution one")
    if len(dict(pairs)) < len(pairs) or len({name for _, name in pairs}) < len(pairs):
        raise ValueError(f"expected each ood loader once, under a different name each, got {ood!r}")
    return dict(pairs)


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


def place_ood(ood: Mapping[int | str, str], names: Sequence[str], stage: str) -> tuple[dict[int, str], str]:
    """The names of the out-of-distribution loaders by index, and what is wrong with the others, or "".

    A loader is left out if it is missing or first, or if another loader has the name that it would get.
    """
    known: dict[int | str, int] = {key: place for place, name in enumerate(names) for key in (place, name)}
    found = {known[loader]: label for loader, label in ood.items() if loader in known}
    others = {name for place, name in enumerate(names) if place not in found}
    present = {place: label for place, label in found.items() if place > 0 and label not in others}
    missing = [loader for loader in ood if loader not in known]
    loaders = ", ".join(f"{place} {name!r}" for place, name in enumerate(names))
    named = [found.get(place, name) for place, name in enumerate(names)]
    if missing:
        near = get_close_matches(str(missing[0]), names, 1)
        hint = f"did you mean {near[0]!r}? Otherwise " if near else ""
        return present, (
            f"expected ood loader {' and '.join(map(repr, missing))} in {stage}, got {len(names)} in all: {loaders}; "
            f"{hint}give several as a list or a dict, one after the other (CombinedLoader in mode 'sequential'); "
            f"{SEVERAL_LOADERS}"
        )
    if 0 in found:
        return present, (
            f"expected the in-distribution loader first in {stage}, got {found[0]!r}, which is given as ood, "
            f"among {loaders}; put the in-distribution loader first"
        )
    if len(set(named[1:])) < len(named) - 1:
        return present, f"expected a different name for each loader in {stage}, got {', '.join(map(repr, named))}"
    return present, ""


def uncalibrated(test: bool | ConformalTest | None, alpha: float) -> ConformalTest | None:
    """A new test without samples, with the arguments of `test`, or with the default ones for True; None for no test."""
    if test is None or test is False:
        return None
    check_share("alpha", alpha)
    if not (test is True or isinstance(test, ConformalTest)):
        raise TypeError(f"expected test as True, False or a torch_boc.ConformalTest, got {type(test).__name__}")
    with torch.inference_mode(False):  # a buffer that is made in inference mode could not be changed outside
        found = ConformalTest() if test is True else deepcopy(test)
        found.reset()
    return found


class Problems:
    """Turns errors into one warning for each kind, so that the probe never ends a training; or raises them.

    >>> problems = Problems("warn")
    >>> with warnings.catch_warnings(record=True, action="always") as said:
    ...     for size in (16, 7):
    ...         with problems.tolerated("a batch of val"):
    ...             raise ValueError(f"expected logits of shape (N, C), got ({size},)")
    >>> len(said)
    1
    """

    def __init__(self, on_error: str = "raise") -> None:
        if on_error not in ("warn", "raise"):
            raise ValueError(f"expected on_error among warn, raise, got {on_error!r}")
        self.on_error = on_error
        self._kinds: set[str] = set()

    @contextmanager
    def tolerated(self, what: str) -> Iterator[None]:
        """Continue after an error in the block, which is about `what`. Interruptions (Ctrl-C) are still raised."""
        try:
            yield
        except Exception as error:
            if self.on_error == "raise":
                raise
            text = f"{what}: {type(error).__name__}: {error}"
            kind = re.sub(r"\d+", "#", text)  # batches differ in size
            if kind not in self._kinds:
                self._kinds.add(kind)
                warnings.warn(
                    f"BoCCallback goes on without {text}. This is said once; the key `skipped_batches` counts batches "
                    "that are left out, and BoCCallback(on_error='raise') stops with the error",
                    stacklevel=4,
                )


@dataclass(frozen=True)
class Probes:
    """What is measured of a loop, and how.

    Attributes:
        metric: cloned for each loader.
        separation: cloned for the first loader and each out-of-distribution one.
        test: says how samples are scored for a conformal test; None for no test.
        alpha: the level of the test.
        problems: what to do about errors.
    """

    metric: BoCMetric
    separation: BoCSeparation
    test: ConformalTest | None = None
    alpha: float = 0.05
    problems: Problems = field(default_factory=Problems)


class Gathered(NamedTuple):
    """What all processes together have seen of a loader.

    Attributes:
        summary: the summary of `BoCMetric`.
        apart: how well the loader is separated from the first one; empty if it is not compared.
        held_out: the parts of the conformal test; empty if there is none.
    """

    summary: dict[str, Tensor]
    apart: dict[str, Tensor]
    held_out: list[ConformalTest]


class LoaderMetrics:
    """The metrics of one loader.

    Args:
        what: the loader in words, for messages.
        probes: what is measured.
        compared: whether the loader is compared with others.
        ood: whether the samples are out-of-distribution. Their targets do not count.
        parts: into how many parts the samples are cut for the test: with two, the samples 0, 2, 4, ... of this process
            are counted in the first part, however the loader cuts them into batches.

    Attributes:
        taken: how many batches were read.
        skipped: how many batches could not be read.
        refused: how many errors make all values of the loader unreliable.
    """

    def __init__(self, what: str, probes: Probes, *, compared: bool, ood: bool, parts: int) -> None:
        self.what, self.ood, self.problems = what, ood, probes.problems
        self.metric, self.separation = deepcopy(probes.metric), deepcopy(probes.separation) if compared else None
        self.parts = [] if probes.test is None else [deepcopy(probes.test) for _ in range(parts)]
        scores = [*(probes.separation.scores if compared else ()), *(part.scoring.name for part in self.parts)]
        self._extras = need_extras(scores)
        self._samples = self.taken = self.skipped = self.refused = 0

    def reset(self, device: torch.device) -> None:
        """Forget all samples, and move to the device of those that will come."""
        self._samples = self.taken = self.skipped = self.refused = 0
        with torch.inference_mode(False):
            for part in (self.metric, self.separation, *self.parts):
                if part is not None:
                    part.reset()
                    part.to(device)

    def add(self, read: Callable[[], tuple[Tensor, Tensor | None]]) -> None:
        """Add a batch whose logits and targets `read` gives; if that fails, it is skipped, or the error is raised."""
        self.skipped += 1
        with self.problems.tolerated(f"a batch of {self.what}"):
            self.update(*read())
            self.skipped, self.taken = self.skipped - 1, self.taken + 1

    def update(self, logits: Tensor, target: Tensor | None) -> None:
        """Add a batch, without waiting for the device; its tensors are not needed any more when this returns."""
        if self.separation is None and not self.parts:
            self.metric.update(logits, target)
            return
        evidence = self.metric.take(logits, target, extras=self._extras)  # one pass over the logits serves all
        evidence = evidence._replace(target=None, distance=None) if self.ood else evidence
        self.metric.update(evidence)
        if self.separation is not None:
            self.separation.update(evidence, self.ood)
        for number, part in enumerate(self.parts):
            start, step = (number - self._samples) % len(self.parts), len(self.parts)
            chosen = every(evidence, start, step)
            if part.scoring.temperature == 1.0:
                part.update(chosen)
            else:
                part.update(logits[start::step].movedim(1, part.dim), chosen.counted)
        self._samples += len(logits)

    def gathered(self, known: "LoaderMetrics", *, labelled: bool) -> Gathered:
        """What all processes together have seen; every process must call it. `known` is the first loader.

        In the summary, values that depend on targets are NaN without `labelled`, or if some targets are not classes.
        """
        # Each process takes part in every exchange, also after an error; otherwise the others would wait for it.
        with self.metric.sync_context():
            total = self.metric.total()
        summary = summarize(total)
        unlabelled = summary | {key: torch.full_like(summary[key], math.nan) for key in LABELLED_KEYS}
        found = Gathered(unlabelled, {}, [])
        with self._relying():
            self.metric._report(Counts(*total.counts).invalid)
        with self.problems.tolerated(f"what the targets of {self.what} decide"):
            if labelled and not self.ood:
                check_targets(self.metric, total)
                found = found._replace(summary=summary)
        if self.separation is not None and known.separation is not None and self.ood:
            with self._relying():
                self.separation.merge_state(known.separation)
            with self._relying(), warnings.catch_warnings():
                # A process may have seen no batch of a loader that others have seen.
                warnings.filterwarnings("ignore", "The ``compute`` method of metric")
                found.apart.update(self.separation.compute())
        with self._relying():
            found.held_out.extend([part.gathered() for part in self.parts])
        return found

    @contextmanager
    def _relying(self) -> Iterator[None]:
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
        ood: the indices of the out-of-distribution loaders. Their targets are not used.
        probes: what is measured.

    Attributes:
        test: after `compute`, a test that is calibrated with all samples of the first loader; None if that failed.

    >>> loop = LoopMetrics("val", ["", "noise"], {1}, Probes(BoCMetric(), BoCSeparation(("msp",))))
    >>> loop.loaders[0].update(torch.tensor([[4.0, 0.0, 1.0]]), torch.tensor([0]))
    >>> loop.loaders[1].update(torch.tensor([[0.1, 0.0, 0.2]]), None)
    >>> {key: round(value.item(), 3) for key, value in loop.compute(("gap", "accuracy")).items()}
    {'gap': 0.031, 'accuracy': 1.0, 'noise/gap': 0.17, 'noise/gap_shift': 0.139,
     'noise/msp_auroc': 1.0, 'noise/msp_fpr95': 0.0}
    """

    def __init__(self, stage: str, names: Sequence[str], ood: Iterable[int], probes: Probes) -> None:
        self.stage, self.names, self.ood, self.probes = stage, list(names), {*ood}, probes
        self.loaders = []
        for place, name in enumerate(names):
            what = f"{stage}, loader {place} {name!r}" if len(names) > 1 else stage
            compared = bool(self.ood) and place in {0, *self.ood}
            parts = 1 if place else 2
            self.loaders.append(LoaderMetrics(what, probes, compared=compared, ood=place in self.ood, parts=parts))
        self.test: ConformalTest | None = None
        self._device = torch.device("cpu")
        self._logged: dict[str, Tensor] = {}
        self._reliable: list[int] = []  # the loaders that have values

    def reset(self, device: torch.device) -> None:
        """Forget all samples, and move to the device of the coming ones."""
        self.test, self._device = None, device
        for loader in self.loaders:
            loader.reset(device)

    def compute(self, keys: Sequence[str], *, if_labelled: bool = False) -> dict[str, Tensor]:
        """The chosen keys of each loader, with shift, AUROC and FPR95 of each `ood` one, and what the test flags.

        Call it once after each reset. In a distributed run, every process must call it, and all get the same values.
        With `if_labelled`, keys about targets are left out if there are no targets; otherwise they are NaN.
        `skipped_batches` is there as soon as a batch was skipped. A key that had a value in an earlier epoch and has
        none now is NaN, because otherwise Lightning would continue to show the earlier value.
        """
        labelled = not LABELLED_KEYS.isdisjoint(keys)
        gathered = [loader.gathered(self.loaders[0], labelled=labelled) for loader in self.loaders]
        batches = torch.tensor([[x.taken, x.skipped, x.refused] for x in self.loaders], device=self._device)
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(batches)
        result: dict[str, Tensor] = {}
        self._reliable = []
        for place, (taken, skipped, refused) in enumerate(batches.tolist()):
            summary, lost = gathered[place].summary, skipped + (taken if refused else 0)
            if lost or self._name(place, "skipped_batches") in self._logged:
                result[self._name(place, "skipped_batches")] = summary["samples"].new_tensor(lost)
            if refused or not self._has_samples(place, summary, taken):
                continue
            self._reliable.append(place)
            no_targets = place in self.ood or (if_labelled and bool(summary["accuracy"].isnan()))
            found = {key: summary[key] for key in keys if not (no_targets and key in LABELLED_KEYS)}
            if place in self._compared():
                found["gap_shift"] = summary["gap"] - gathered[0].summary["gap"]
                found |= self._without_small_errors(place, gathered[place].apart)
            result |= {self._name(place, key): value for key, value in found.items()}
        result |= self._flagged([x.held_out for x in gathered])
        gone = {key: torch.full_like(value, math.nan) for key, value in self._logged.items() if key not in result}
        self._logged = result | gone
        return self._logged

    def figures(self, *, draw: bool) -> dict[str, Any]:
        """The figures of all loaders, if `draw` is set; to be called after `compute`.

        In a distributed run, every process must call it, because the figures show the sums of all processes.
        """
        coherence = [(self._name(place, "coherence"), self.loaders[place].metric) for place in self._reliable]
        separation = [(self._name(place, "separation"), self.loaders[place].separation) for place in self._compared()]
        found = {}
        for name, metric in (*coherence, *separation):
            assert metric is not None
            with metric.sync_context(), self.probes.problems.tolerated(f"the figure {self.stage}/{name}"):
                if isinstance(metric, BoCMetric):
                    check_targets(metric, metric.total())
                if draw:
                    found[name] = metric.plot()[0]
        return found

    def _has_samples(self, place: int, summary: Mapping[str, Tensor], taken: int) -> bool:
        found = bool(summary["samples"] + summary["invalid"] > 0)  # of all processes
        if taken and not found:
            with self.probes.problems.tolerated(self.loaders[place].what):
                raise ValueError(
                    f"expected samples, got none in {taken} batches: they are empty, or every target is "
                    f"ignore_index, {self.probes.metric.ignore_index}; ignore_index=None counts all samples"
                )
        return found

    def _compared(self) -> list[int]:
        return [place for place in self._reliable if place in self.ood and 0 in self._reliable]

    def _without_small_errors(self, place: int, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The values without negligible errors, except for keys whose error was logged earlier."""
        said = {key for key in values if not key.endswith("_error") or self._name(place, key) in self._logged}
        return {key: value for key, value in values.items() if key in said or bool(value > NEGLIGIBLE_ERROR)}

    def _flagged(self, held_out: list[list[ConformalTest]]) -> dict[str, Tensor]:
        """The shares that the test flags: of a half of the first loader by its other half, of others by all of it."""
        if 0 not in self._reliable or self.probes.test is None:
            return {}
        first, second = held_out[0]
        with torch.inference_mode(False):
            self.test = deepcopy(first).merge(second)
        found: dict[str, Tensor] = {}
        for place in self._reliable:
            test, tested = (self.test, held_out[place][0]) if place else (first, second)
            samples, alpha = test.samples.tolist(), self.probes.alpha
            with self.probes.problems.tolerated(f"`{self._name(place, 'flagged')}` of {self.stage}"):
                if not any(threshold_rank(number, alpha) for number in samples):
                    raise ValueError(
                        f"expected enough held-out samples to flag one at alpha={alpha}, got {sum(samples)}"
                    )
                share = flagged_share(test.counts, tested.counts, alpha, tested.invalid)
                found[self._name(place, "flagged")] = share
        return found

    def _name(self, place: int, key: str) -> str:
        return key if place == 0 else f"{self.names[place]}/{key}"


def check_targets(metric: BoCMetric, total: Tally) -> None:
    """Raise if there are targets that are not classes, because the results of the other targets may mislead."""
    metric._report(torch.tensor(0), Counts(*total.counts).bad_targets)
