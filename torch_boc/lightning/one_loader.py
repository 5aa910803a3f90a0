"""The metrics of one loader, which go on after a batch that cannot be read."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor

from ..functional.registry import need_extras
from ..functional.summary import LABELLED_KEYS, summarize
from ..functional.tallies import Counts
from ..metrics import BoCMetric, BoCSeparation
from ..nn import ConformalTest
from .problems import Problems
from .screening import CountedScores


class LoaderMetrics:
    """The `BoCMetric` of a loader, and a `BoCSeparation` if the loader is compared with others.

    Args:
        what: the loader in words, for messages.
        metric: it is cloned.
        separation: it is cloned; or None.
        ood: whether the samples are out-of-distribution. Their targets do not count.
        problems: what to do about errors.
        test: how samples are scored for a conformal test, or None.
        parts: into how many parts the samples are cut for the test.

    Attributes:
        taken: how many batches were read.
        lost: how many batches could not be read.
        refused: how many errors make all values of the loader unreliable.
    """

    def __init__(
        self,
        what: str,
        metric: BoCMetric,
        separation: BoCSeparation | None,
        *,
        ood: bool,
        problems: Problems,
        test: ConformalTest | None = None,
        parts: int = 1,
    ) -> None:
        self.what, self.ood, self.problems = what, ood, problems
        self.metric, self.separation = deepcopy(metric), deepcopy(separation)
        self.scores = None if test is None else CountedScores(test, parts)
        self._extras = {*(() if separation is None else separation.needs_extras)}
        self._extras |= {*(() if test is None else need_extras([test.scoring.name]))}
        self.taken = self.lost = self.refused = 0

    def reset(self, device: torch.device) -> None:
        """Forget all samples, and move to the device of those that will come."""
        self.taken = self.lost = self.refused = 0
        for metric in (self.metric, self.separation):
            if metric is not None:
                metric.reset()
                metric.to(device)
        if self.scores is not None:
            self.scores.reset(device)

    def add(self, read: Callable[[], tuple[Tensor, Tensor | None]]) -> None:
        """Add a batch whose logits and targets `read` gives; if that fails, it is lost, or the error is raised."""
        self.lost += 1
        with self.problems.tolerated(f"a batch of {self.what}"):
            self.update(*read())
            self.lost -= 1

    def update(self, logits: Tensor, target: Tensor | None) -> None:
        """Add a batch, without waiting for the device; its tensors are not needed any more when this returns."""
        if self.separation is None and self.scores is None:
            self.metric.update(logits, target)
        else:  # one pass over the logits serves all
            evidence = self.metric.take(logits, target, extras=self._extras)
            evidence = evidence._replace(target=None, distance=None) if self.ood else evidence
            self.metric.update(evidence)
            if self.separation is not None:
                self.separation.update(evidence, self.ood)
            if self.scores is not None:
                self.scores.update(logits, evidence)
        self.taken += 1

    def summary(self, *, labelled: bool) -> dict[str, Tensor]:
        """The summary over all processes; every process must call it.

        Values that depend on targets are NaN without `labelled`, or if there are targets that are not classes.
        """
        with unwarned(), self.metric.sync_context():
            total = self.metric.total()
        with self.relying():
            self.metric._report(Counts(*total.counts).invalid)
        summary = summarize(total)
        if labelled:
            with self.problems.tolerated(f"what the targets of {self.what} decide"):
                self.check_targets(total.counts)
                return summary
        return summary | {key: torch.full_like(summary[key], float("nan")) for key in LABELLED_KEYS}

    def separate(self, known: "LoaderMetrics") -> dict[str, Tensor]:
        """How well this loader is separated from the first, over all processes; every process must call it."""
        assert self.separation is not None
        assert known.separation is not None
        with self.relying():
            self.separation.merge_state(known.separation)
        found: dict[str, Tensor] = {}
        with unwarned(), self.relying():
            found |= self.separation.compute()
        return found

    def held_out(self) -> list[ConformalTest]:
        """The scores for the test, over all processes; every process must call it. Empty if that fails."""
        found: list[ConformalTest] = []
        if self.scores is not None:
            with self.relying():
                found += self.scores.gathered()
        return found

    @contextmanager
    def relying(self) -> Iterator[None]:
        """Refuse all values of this loader, in all processes, if the block fails in one of them."""
        self.refused += 1
        with self.problems.tolerated(self.what):
            yield
            self.refused -= 1

    def check_targets(self, counts: Tensor) -> None:
        """Raise if there are targets that are not classes, because the results of the other targets may mislead."""
        self.metric._report(torch.tensor(0), Counts(*counts).bad_targets)


@contextmanager
def unwarned() -> Iterator[None]:
    """Silence a warning of torchmetrics: a process may have seen no batch of a loader that others have seen."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The ``compute`` method of metric")
        yield
