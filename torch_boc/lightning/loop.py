"""The metrics of one loop over one or several loaders."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..functional.summary import LABELLED_KEYS
from ..metrics import BoCMetric, BoCSeparation
from ..metrics.separation import NEGLIGIBLE_ERROR
from ..nn import ConformalTest
from .ledger import Account, Ledger
from .one_loader import LoaderMetrics, unwarned
from .problems import Problems
from .screening import joined, share_flagged


class LoopMetrics:
    """A `BoCMetric` for each loader, and a `BoCSeparation` for each out-of-distribution loader and the first one.

    Args:
        loaders: the names of the loaders. The first is in-distribution, and its name is not part of any key.
        ood: the indices of the out-of-distribution loaders. Their targets are not used.
        metric: cloned for each loader.
        separation: cloned for the first loader and each out-of-distribution one.
        stage: the name of the loop, for messages.
        problems: what to do about errors; by default they are raised.
        test: how samples are scored for a conformal test; None for no test.
        alpha: the level of the test.

    Attributes:
        test: after `compute`, a test that is calibrated with all samples of the first loader; None if that failed.

    >>> loop = LoopMetrics(["", "noise"], {1}, BoCMetric(), BoCSeparation(("msp",)))
    >>> loop.update(0, torch.tensor([[4.0, 0.0, 1.0]]), torch.tensor([0]))
    >>> loop.update(1, torch.tensor([[0.1, 0.0, 0.2]]), None)
    >>> {key: round(value.item(), 3) for key, value in loop.compute(("gap", "accuracy")).items()}
    {'gap': 0.031, 'accuracy': 1.0, 'noise/gap': 0.17, 'noise/gap_shift': 0.139,
     'noise/msp_auroc': 1.0, 'noise/msp_fpr95': 0.0}
    """

    def __init__(
        self,
        loaders: Sequence[str],
        ood: set[int],
        metric: BoCMetric,
        separation: BoCSeparation,
        *,
        stage: str = "val",
        problems: Problems | None = None,
        test: ConformalTest | None = None,
        alpha: float = 0.05,
    ) -> None:
        self.loaders, self.ood, self.stage = list(loaders), sorted(ood), stage
        self.problems = problems or Problems("raise")
        self.metrics = [
            LoaderMetrics(
                f"{stage}, loader {place} {name!r}" if len(loaders) > 1 else stage,
                metric,
                separation if ood and place in {0, *ood} else None,
                ood=place in ood,
                problems=self.problems,
                test=test,
                parts=2 if place == 0 else 1,
            )
            for place, name in enumerate(loaders)
        ]
        self.test: ConformalTest | None = None
        self._alpha = alpha
        self._ledger = Ledger(len(loaders))
        self._logged: dict[str, Tensor] = {}
        self._without: set[int] = set()  # the loaders without values that can be relied on

    def reset(self, device: torch.device) -> None:
        """Forget all samples, and move to the device of the coming ones."""
        self.test = None
        self._ledger.to(device)
        for metrics in self.metrics:
            metrics.reset(device)

    def add(self, loader: int, read: Callable[[], tuple[Tensor, Tensor | None]]) -> None:
        """Add a batch whose logits and targets `read` gives, or count it as skipped, as `problems` decides."""
        self.metrics[loader].add(read)

    def update(self, loader: int, logits: Tensor, target: Tensor | None) -> None:
        """Add a batch of a loader, without waiting for the device."""
        self.metrics[loader].update(logits, target)

    def compute(self, keys: Sequence[str], *, if_labelled: bool = False) -> dict[str, Tensor]:
        """The chosen keys of each loader, then shift, AUROC and FPR95 of each `ood` one, then what the test flags.

        Call it once after each reset. In a distributed run, every process must call it, and all get the same values.
        With `if_labelled`, keys about targets are left out if there are no targets; otherwise they are NaN.
        `skipped_batches` is there as soon as a batch was skipped. A key that had a value in an earlier epoch and has
        none now is NaN, because otherwise Lightning would continue to show the earlier value.
        """
        # Each process takes part in every exchange, also after an error; otherwise the others would wait for it.
        asked = not LABELLED_KEYS.isdisjoint(keys)
        summaries = [x.summary(labelled=asked and not x.ood) for x in self.metrics]
        apart = {place: self.metrics[place].separate(self.metrics[0]) for place in self.ood}
        held_out = [x.held_out() for x in self.metrics]
        account = self._settle()
        self._without = {i for i, summary in enumerate(summaries) if not self._has_values(i, summary, account)}
        result: dict[str, Tensor] = {}
        for place, summary in enumerate(summaries):
            if place not in self._without:
                result |= self._chosen(place, summary, keys, if_labelled=if_labelled)
        for place in self._compared():
            shift = {"gap_shift": summaries[place]["gap"] - summaries[0]["gap"]}
            result |= self._named(place, shift | self._worth_saying(place, apart[place]))
        result |= self._flagged(held_out)
        return self._completed(result | self._skipped(account, like=summaries[0]["samples"]))

    def figures(self, *, draw: bool) -> dict[str, Any]:
        """The figures of all loaders, if `draw` is set; to be called after `compute`.

        In a distributed run, every process must call it, because the figures show the sums of all processes.
        """
        found = {}
        for place in sorted({*range(len(self.loaders))} - self._without):
            one, name = self.metrics[place], self._name(place, "coherence")
            with unwarned(), one.metric.sync_context(), self._drawing(name):
                one.check_targets(one.metric.total().counts)
                if draw:
                    found[name] = one.metric.plot()[0]
        for place in self._compared():
            separation, name = self.metrics[place].separation, self._name(place, "separation")
            assert separation is not None
            with unwarned(), separation.sync_context(), self._drawing(name):
                if draw:
                    found[name] = separation.plot()[0]
        return found

    def _flagged(self, held_out: list[list[ConformalTest]]) -> dict[str, Tensor]:
        """The shares that the test flags: of a half of the first loader by its other half, of others by all of it."""
        if 0 in self._without or not held_out[0]:
            return {}
        first, second = held_out[0]
        self.test = joined([first, second])
        found: dict[str, Tensor] = {}
        for place, parts in enumerate(held_out):
            if place not in self._without:
                calibrated, tested = (self.test, parts) if place else (first, [second])
                with self.problems.tolerated(f"`{self._name(place, 'flagged')}` of {self.stage}"):
                    found |= self._named(place, {"flagged": share_flagged(calibrated, tested, self._alpha)})
        return found

    def _drawing(self, name: str) -> Any:
        return self.problems.tolerated(f"the figure {self.stage}/{name}")

    def _settle(self) -> Account:
        counts = {name: [getattr(x, name) for x in self.metrics] for name in ("taken", "lost", "refused")}
        account = self._ledger.settle(**counts, said=self.problems.said_by_first())
        self.problems.settle(account.said)
        return account

    def _has_values(self, place: int, summary: Mapping[str, Tensor], account: Account) -> bool:
        if account.refused[place]:
            return False
        if bool(summary["samples"] + summary["invalid"] > 0):  # of all processes
            return True
        if account.taken[place]:
            with self.problems.tolerated(self.metrics[place].what):
                raise ValueError(
                    f"expected samples, got none in {account.taken[place]} batches: they are empty, or every target is "
                    f"ignore_index, {self.metrics[place].metric.ignore_index}; ignore_index=None counts all samples"
                )
        return False

    def _compared(self) -> list[int]:
        return [place for place in self.ood if not self._without & {0, place}]

    def _chosen(
        self, place: int, summary: Mapping[str, Tensor], keys: Sequence[str], *, if_labelled: bool
    ) -> dict[str, Tensor]:
        no_targets = place in self.ood or (if_labelled and bool(summary["accuracy"].isnan()))
        left_out = LABELLED_KEYS if no_targets else ()
        return self._named(place, {key: summary[key] for key in keys if key not in left_out})

    def _worth_saying(self, place: int, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The values without negligible errors, except for keys whose error was logged earlier."""
        said = {key for key in values if not key.endswith("_error") or self._name(place, key) in self._logged}
        return {key: value for key, value in values.items() if key in said or bool(value > NEGLIGIBLE_ERROR)}

    def _skipped(self, account: Account, *, like: Tensor) -> dict[str, Tensor]:
        names = [self._name(place, "skipped_batches") for place in range(len(self.loaders))]
        counts = zip(names, account.skipped, strict=True)
        return {name: like.new_tensor(count) for name, count in counts if count or name in self._logged}

    def _completed(self, result: dict[str, Tensor]) -> dict[str, Tensor]:
        gone = {key: torch.full_like(value, float("nan")) for key, value in self._logged.items() if key not in result}
        self._logged = result | gone
        return self._logged

    def _named(self, place: int, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {self._name(place, key): value for key, value in values.items()}

    def _name(self, place: int, key: str) -> str:
        return key if place == 0 else f"{self.loaders[place]}/{key}"
