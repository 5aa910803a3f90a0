"""The metrics of one loop over one or several loaders."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from ..functional.checks import as_indices
from ..functional.samples import Samples, join_samples
from ..functional.summary import LABELLED_KEYS
from ..metrics import BoCMetric, BoCSeparation
from ..metrics.separation import NEGLIGIBLE_ERROR, Scored

# A sample waits as some ten numbers: 80 kB in all.
ENOUGH_SAMPLES = 1024


class LoopMetrics:
    """A `BoCMetric` for each loader, and a `BoCSeparation` for each out-of-distribution one against the first.

    Args:
        loaders: the names of the loaders; that of the first, which is in-distribution, appears in no key.
        ood: which of them are out-of-distribution, by index. Their targets do not count.
        metric: cloned for each loader.
        separation: cloned for the first loader and each out-of-distribution one.

    >>> loop = LoopMetrics(["", "noise"], {1}, BoCMetric(), BoCSeparation(("msp",)))
    >>> loop.update(0, torch.tensor([[4.0, 0.0, 1.0]]), torch.tensor([0]))
    >>> loop.update(1, torch.tensor([[0.1, 0.0, 0.2]]), None)
    >>> {key: round(value.item(), 3) for key, value in loop.compute(("gap", "accuracy")).items()}
    {'gap': 0.031, 'accuracy': 1.0, 'noise/gap': 0.17, 'noise/gap_shift': 0.139,
     'noise/msp_auroc': 1.0, 'noise/msp_fpr95': 0.0}
    """

    def __init__(self, loaders: Sequence[str], ood: set[int], metric: BoCMetric, separation: BoCSeparation) -> None:
        self.loaders, self.ood, self.ignore_index = list(loaders), ood, metric.ignore_index
        self.metrics = [deepcopy(metric) for _ in loaders]
        self._pending: list[list[tuple[Samples, Scored | None]]] = [[] for _ in loaders]
        self.separations = {place: deepcopy(separation) for place in ([0, *sorted(ood)] if ood else [])}
        for place in ood if self.ignore_index is not None else ():
            self.metrics[place].nan_strategy = "ignore"  # `_without_ignored` makes NaN of what does not count

    def reset(self, device: torch.device) -> None:
        """Forget all samples, and move to the device of those that will come."""
        for metric in (*self.metrics, *self.separations.values()):
            metric.reset()
            metric.to(device)
        for pending in self._pending:
            pending.clear()

    def update(self, loader: int, logits: Tensor, target: Tensor | None) -> None:
        """Add a batch of a loader, without waiting for the device."""
        counted = self._without_ignored(logits, target) if self.separations else logits
        labelled = (counted, None) if loader in self.ood else (logits, target)
        scored = self.separations[loader].take(counted) if loader in self.separations else None
        self._add(loader, self.metrics[loader].take(*labelled), scored)

    def compute(self, keys: Sequence[str]) -> dict[str, Tensor]:
        """The chosen keys of each loader, then what sets the out-of-distribution ones apart; once between resets.

        In a distributed run, every process must call it; all get the same.
        """
        for loader in range(len(self.metrics)):
            self._tally(loader)
        with _unwarned():
            summaries = [metric.compute() for metric in self.metrics]
            result: dict[str, Tensor] = {}
            for place, summary in enumerate(summaries):
                if bool(summary["samples"] + summary["invalid"] > 0):  # of all processes
                    result |= self._chosen(place, summary, keys)
            for place in sorted(self.ood):
                shift = {"gap_shift": summaries[place]["gap"] - summaries[0]["gap"]}
                result |= self._named(place, shift | self._separation(place))
        return result

    def figures(self, *, draw: bool) -> dict[str, Any]:
        """Figures of all, after `compute`, where `draw` is set.

        In a distributed run, every process must call it, for the sums are those of all.
        """
        parts: dict[str, BoCMetric | BoCSeparation] = {}
        parts |= {self._name(place, "coherence"): metric for place, metric in enumerate(self.metrics)}
        parts |= {self._name(place, "separation"): self.separations[place] for place in sorted(self.ood)}
        found = {}
        for name, metric in parts.items():
            with _unwarned(), metric.sync_context():
                if draw:
                    found[name] = metric.plot()[0]
        return found

    def _add(self, loader: int, samples: Samples, scored: Scored | None) -> None:
        """Samples wait until they are many: a tally of few costs as much, nearly all of it for starting operations."""
        pending = self._pending[loader]
        if pending and (pending[0][0].target is None) != (samples.target is None):
            self._tally(loader)
        pending.append((samples, scored))
        if sum(part.counted.numel() for part, _ in pending) >= ENOUGH_SAMPLES:
            self._tally(loader)

    def _tally(self, loader: int) -> None:
        if not self._pending[loader]:
            return
        samples, scored = zip(*self._pending[loader], strict=True)
        self._pending[loader].clear()
        self.metrics[loader].update(join_samples(samples))
        if loader in self.separations:
            values = torch.cat([part.values.flatten(1) for part in scored], 1)
            self.separations[loader].update(Scored(values), loader in self.ood)

    def _chosen(self, place: int, summary: Mapping[str, Tensor], keys: Sequence[str]) -> dict[str, Tensor]:
        skipped = LABELLED_KEYS if place in self.ood else ()
        return self._named(place, {key: summary[key] for key in keys if key not in skipped})

    def _separation(self, place: int) -> dict[str, Tensor]:
        metric = self.separations[place]
        metric.merge_state(self.separations[0])
        result = metric.compute().items()
        return {key: value for key, value in result if not key.endswith("_error") or bool(value > NEGLIGIBLE_ERROR)}

    def _named(self, place: int, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {self._name(place, key): value for key, value in values.items()}

    def _name(self, place: int, key: str) -> str:
        return key if place == 0 else f"{self.loaders[place]}/{key}"

    def _without_ignored(self, logits: Tensor, target: Tensor | None) -> Tensor:
        """Logits whose ignored samples are NaN, which no metric counts."""
        if target is None or self.ignore_index is None:
            return logits
        return logits.masked_fill((as_indices(target) == self.ignore_index).unsqueeze(1), float("nan"))


@contextmanager
def _unwarned() -> Iterator[None]:
    """A process may have seen no batch of a loader that others have seen."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The ``compute`` method of metric")
        yield
