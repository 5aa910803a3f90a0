"""The summary of the probe, and the mean coherence gap, as torchmetrics metrics."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import plots
from ..core.dtypes import is_eager_without_grad
from ..core.schema import Counts, Tally
from ..core.tally import empty_tally
from ..functional.checks import check_target, check_trials
from ..functional.per_sample import SampleStats, check_extras, sample_stats
from ..functional.score_bins import num_bins
from ..functional.selective import BY_LOG_ODDS, bin_predictions, risk_summary
from ..functional.summary import (
    CLASSWISE,
    P_VALUE_KEYS,
    RISK_KEYS,
    binned_error,
    check_gap,
    check_keys,
    summarize,
)
from ..functional.tally import add_classwise, add_gaps, add_logits, add_sample_stats
from ..kernels.cpu.bindings import DTYPES
from ..kernels.dispatch import choose_kernels, use
from .base import ProbeMetric, state_suffix

GAP_KEYS = ("gap", "forced_gap", "free_gap")
# Without kernels, batches of no more logits than this wait until there are 64, which are added together.
MOST_WAITING, MOST_WAITING_LOGITS = 64, 2**15


class BoCMetric(ProbeMetric):
    """Calibration and coherence of a classifier's logits, accumulated in constant memory.

    `update` takes logits (or log-probabilities) of shape (N, C), or with more axes, and optionally the target classes.
    `compute` returns the dict that `torch_boc.functional.boc_summary` documents.

    Further keys must be requested by `keys`, because they count correct and wrong predictions by their log odds, in
    1.5 MiB: `aurc` and `augrc`, the areas under the risk-coverage curves (lower is better); `coverage_at_1`,
    `coverage_at_2` and `coverage_at_5`, the largest coverage with a selective risk of at most 1, 2 or 5 % (of the
    samples seen; `Acceptance` gives a guarantee for new ones); `ece_equal_mass`, the ECE in bins of confidence with as
    many samples each. And `ece_classwise`, the mean calibration error of the probabilities of each class, which needs
    logits.

    Args:
        num_classes: the number of classes, checked against the logits. By default that of the first batch.
        prefix: the start of every key, such as "boc_". Give one in a `MetricCollection`: if two keys are equal, for
            example `accuracy`, the collection renames the keys of all metrics that return a dict.
        keys: which keys to return, in this order; by default all of `boc_summary`. `p_value`, `rejection_rate` and
            `structural_score` take more time than all others: without them an update is faster.
        trials: the number of coin flips of the test.
        bins: the number of bins of equal width for the calibration errors.
        alpha: the level of `rejection_rate`.
        ignore_index: samples with this target do not count; -100 as in cross_entropy. None counts all.
        dim: the class axis; 1 for segmentation, -1 for tokens. By default the second of (N, C); with more axes, that
            which the shape of the target implies.
        binary: take the single logit z of a binary classifier, of shape (N,) or (N, 1), for the two classes (0, z). Its
            targets are 0 and 1 of any dtype. The gap of two classes is 0; confidence, `nll` and accuracy are not.
        nan_strategy: what `compute` does about rows with NaN or +inf, which never count: "warn", "error" or "ignore".
        validate_args: whether to refuse probabilities.
        kwargs: passed on to `torchmetrics.Metric`.

    >>> metric = BoCMetric(num_classes=3)
    >>> metric.update(torch.tensor([[4.0, 1.0, 0.0], [0.0, 2.0, 1.0]]), torch.tensor([0, 2]))
    >>> result = metric.compute()
    >>> round(result["gap"].item(), 3), round(result["forced_gap"].item(), 3), result["accuracy"].item()
    (0.086, 0.082, 0.5)
    """

    def __init__(
        self,
        num_classes: int | None = None,
        *,
        prefix: str = "",
        keys: Sequence[str] | None = None,
        trials: int = 100,
        bins: int = 15,
        alpha: float = 0.05,
        ignore_index: int | None = -100,
        dim: int | None = None,
        binary: bool = False,
        nan_strategy: str = "warn",
        validate_args: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs |= {"nan_strategy": nan_strategy, "validate_args": validate_args}
        super().__init__(num_classes, dim=dim, binary=binary, **kwargs)
        if not 0 <= alpha <= 1:
            raise ValueError(f"expected alpha in [0, 1], got {alpha}")
        if bins < 1:
            raise ValueError(f"expected at least 1 bin, got {bins}")
        # The attribute is not called `prefix`: a MetricCollection would take this metric for a collection inside of it.
        self.key_prefix = prefix or ""
        self.keys = None if keys is None else check_keys(keys)
        self.trials, self.bins, self.alpha, self.ignore_index = check_trials(trials), bins, alpha, ignore_index
        self._flips = self.trials if self.keys is None or {*P_VALUE_KEYS} & {*self.keys} else 0
        suffix = state_suffix(trials=self._flips, bins=bins, alpha=alpha, ignore=ignore_index, dim=dim, binary=binary)
        self._names = self._add_sums(suffix, **empty_tally(bins)._asdict())
        self._waiting: list[tuple[Tensor, Tensor | None]] = []
        self._parked: dict[str, Tensor] = {}
        self._kind: tuple[Any, ...] = ()
        self._at_once = 0  # how many batches do not wait
        self._risks, self._classwise = list[str](), list[str]()  # the names of optional states
        if {*RISK_KEYS} & {*(self.keys or ())}:
            zeros = torch.zeros(2, num_bins(BY_LOG_ODDS.resolution), dtype=torch.int64)
            self._risks = self._add_sums(suffix, risks=zeros)
        if CLASSWISE in (self.keys or ()):
            zeros = empty_tally().sums.new_zeros(self.num_classes or 1, bins)  # one row until the classes are known
            self._classwise = self._add_sums(suffix, classwise=zeros)

    def extract(
        self, preds: Tensor, target: Tensor | None = None, *, extras: bool | Iterable[str] = False
    ) -> SampleStats:
        """Take from a batch of logits what `update` needs: a few numbers per sample, which can be added later.

        `extras` are those of `sample_stats`: True takes what every score and every column needs.
        """
        return self._stats(*self._normalize_input(preds, target), extras)

    def _stats(self, logits: Tensor, target: Tensor | None, extras: bool | Iterable[str] = False) -> SampleStats:
        if self._risks:
            extras = (*check_extras(extras), "log_odds")
        return sample_stats(logits.detach(), target, trials=self.trials, extras=extras, ignore_index=self.ignore_index)

    def update(self, preds: Tensor | SampleStats, target: Tensor | None = None) -> None:
        """Add a batch: logits of shape (N, C), and targets of shape (N,); or both with more axes.

        Instead of logits, `preds` can be the statistics from `extract`.
        """
        if isinstance(preds, SampleStats):
            stats = preds
            self._agree_on_classes(stats.num_classes)
            if self._classwise and stats.target is not None:
                raise ValueError(f"expected logits for the key {CLASSWISE!r}, got their statistics")
        else:
            logits, target = self._normalize_input(preds, target)
            if self._classwise and target is not None:
                self._agree_on_classes(logits.shape[-1])  # a reset state has one row again
                (excess,) = self._states(self._classwise)
                add_classwise(excess, logits, target, ignore_index=self.ignore_index)
            if not self._risks:
                self._add(logits, target)
                return
            stats = self._stats(logits, target)
        add_sample_stats(Tally(*self._states(self._names)), stats._replace(trials=self._flips), alpha=self.alpha)
        if self._risks and stats.target is not None:
            (counts,) = self._states(self._risks)
            (bins, _, valid, _), wrong = bin_predictions(stats)
            counts.view(-1).scatter_add_(0, (wrong * counts.shape[1] + bins).reshape(-1), valid.reshape(-1).long())

    def _add(self, logits: Tensor, target: Tensor | None) -> None:
        """Add a batch to the tally. Where a few rows cost torch's operations as much as many, small batches wait.

        While batches wait, the states are not attributes: `__getattr__` adds the batches first.
        """
        options = self.alpha, self.ignore_index
        if not self._waiting and self._tally(
            None, logits, target, options, 0 if self._at_once else MOST_WAITING_LOGITS
        ):
            if self._at_once:
                self._at_once -= 1
            return
        rows = logits.detach()
        waits = rows.numel() <= MOST_WAITING_LOGITS and rows.dtype in DTYPES and is_eager_without_grad(rows)
        # On a GPU, a graph may replay the call.
        if not waits or rows.device.type == "cuda" or choose_kernels(rows) is not None:
            self._tally(None, rows, target, options)
            return
        kind = rows.dtype, rows.device, target is None, options
        if kind != self._kind:
            self._settle()
        labels = None if target is None else check_target(target, rows.shape[:-1]).to(rows.device, copy=True)
        if not self._waiting:
            self._kind, self._parked = kind, {name: self.__dict__.pop(name) for name in self._names}
        self._waiting.append((rows.clone(), labels))  # the caller may use the memory again
        if len(self._waiting) == MOST_WAITING:
            self._settle()

    def _settle(self) -> None:
        if not self.__dict__.get("_parked"):
            return
        with torch.utils._python_dispatch._disable_current_modes(), use("torch"):  # as when they came
            # To other states first: after an error, or when interrupted, all batches still wait.
            more = [torch.zeros_like(x) for x in self._parked.values()]
            if self._waiting:
                logits = torch.cat([rows.flatten(0, -2) for rows, _ in self._waiting])
                labels = [target.flatten() for _, target in self._waiting if target is not None]
                self._tally(more, logits, torch.cat(labels) if labels else None, self._kind[-1])
            if len(self._waiting) == 1:  # the states are read after each batch, as by a collection
                self._at_once = MOST_WAITING
            self.__dict__.update(self._parked, _parked={}, _waiting=[])
            for state, added in zip(self._states(self._names), more, strict=True):
                state.add_(added)

    def _tally(
        self,
        total: Sequence[Tensor] | None,
        logits: Tensor,
        target: Tensor | None,
        options: tuple[float, int | None],
        leave: int = 0,
    ) -> bool:
        """Add a batch to a tally, by default that of the states; `leave` as in `add_logits`."""
        total, (alpha, ignore_index) = self._states(self._names) if total is None else total, options
        return add_logits(
            Tally(*total), logits, target, trials=self._flips, alpha=alpha, ignore_index=ignore_index, leave=leave
        )

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_parked", ()):
            self._settle()
            return self.__dict__[name]
        return super().__getattr__(name)

    def reset(self) -> None:
        """Forget all batches."""
        self._waiting.clear()
        super().reset()

    def __getstate__(self) -> dict[str, Any]:
        self._settle()  # a copy must not have the same batches
        return super().__getstate__()

    def compute(self) -> dict[str, Tensor]:
        """The summary of all batches so far, by key."""
        counts = Counts(*self.total().counts)
        self._report(counts.invalid, counts.bad_targets)
        summary = self.summary()
        return {f"{self.key_prefix}{key}": summary[key] for key in self.keys or summary}

    def summary(self) -> dict[str, Tensor]:
        """Every key that the states of this process give, without prefix; nothing is checked, synced or reported."""
        total = self.total()
        summary = summarize(total, p_values=self._flips > 0)
        if self._risks:
            (counts,) = self._states(self._risks)
            summary |= risk_summary(counts, self.bins)
        if self._classwise:
            (excess,) = self._states(self._classwise)
            summary[CLASSWISE] = binned_error(excess, Counts(*total.counts).labelled).mean()
        return summary

    def _agree_on_classes(self, classes: int, shape: Sequence[int] = ()) -> None:
        super()._agree_on_classes(classes, shape)
        for name in self._classwise:
            if len(excess := getattr(self, name)) < classes:
                setattr(self, name, excess.expand(classes, -1).clone())

    def total(self) -> Tally:
        """A copy of the sums and histograms behind the summary. A later `update` does not change the copy."""
        return Tally(*(getattr(self, name).clone() for name in self._names))

    def plot(
        self,
        val: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]] | None = None,
        ax: Any = None,
        kind: str = "all",
    ) -> tuple[Any, Any]:
        """Draw all samples so far, or several results step by step.

        Args:
            val: results of `compute` or `forward`. Then their gaps are drawn step by step, or all `keys` if `keys` has
                no gap.
            ax: matplotlib axes to draw in; `kind="all"` needs three.
            kind: "gap" (histogram), "coherence" (mean gap against confidence, with the band that confidence allows),
                "reliability" (accuracy against confidence and dominance, in the bins with at least 10 samples), or
                "all" three.

        Returns:
            The figure and the axes.
        """
        if val is not None:
            chosen = self.keys or GAP_KEYS
            drawn = [f"{self.key_prefix}{key}" for key in [key for key in GAP_KEYS if key in chosen] or chosen]
            return plots.draw_course([val] if isinstance(val, Mapping) else val, ax, drawn)
        return plots.draw_tally(self.total(), self.num_classes, ax, kind)


class CoherenceGap(ProbeMetric):
    """The mean coherence gap as one tensor, which can be logged directly.

    Args:
        num_classes: the number of classes, checked against the logits. By default that of the first batch.
            `average=None` needs it.
        part: "total", "forced" (the part that confidence decides) or "free" (the part that the geometry adds).
        average: "micro" for one mean. None or "none" for one mean per predicted class, with NaN if a class is never
            predicted.
        ignore_index: samples with this target do not count; -100 as in cross_entropy. None counts all.
        dim: the class axis; 1 for segmentation, -1 for tokens. By default the second of (N, C); with more axes, that
            which the shape of the target implies.
        binary: take the single logit z of a binary classifier, of shape (N,) or (N, 1), for the two classes (0, z);
            their gap is always 0.
        nan_strategy: what `compute` does about rows with NaN or +inf, which never count: "warn", "error" or "ignore".
        validate_args: whether to refuse probabilities.
        kwargs: passed on to `torchmetrics.Metric`.

    >>> metric = CoherenceGap()
    >>> metric(torch.tensor([[4.0, 1.0, 0.0], [0.0, 2.0, 1.0]]))
    tensor(0.0859)
    """

    def __init__(
        self,
        num_classes: int | None = None,
        *,
        part: str = "total",
        average: str | None = "micro",
        ignore_index: int | None = -100,
        dim: int | None = None,
        binary: bool = False,
        nan_strategy: str = "warn",
        validate_args: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs |= {"nan_strategy": nan_strategy, "validate_args": validate_args}
        super().__init__(num_classes, dim=dim, binary=binary, **kwargs)
        check_gap(part, average)
        if average != "micro" and num_classes is None:
            raise ValueError(f"expected num_classes with average={average!r}, got None")
        self.part, self.average, self.ignore_index = part, average, ignore_index
        size = num_classes if average != "micro" and num_classes is not None else 1
        suffix = state_suffix(part=part, average=average or "none", ignore=ignore_index, dim=dim, binary=binary)
        zeros = {"gap": empty_tally().sums.new_zeros(size), "samples": torch.zeros(size, dtype=torch.int64)}
        self._names = self._add_sums(suffix, **zeros, invalid=torch.tensor(0))

    def update(self, preds: Tensor, target: Tensor | None = None) -> None:
        """Add a batch of logits; targets are used for `ignore_index`, and their shape for the class axis."""
        states = self._states(self._names)
        add_gaps(states, *self._normalize_input(preds, target), part=self.part, ignore_index=self.ignore_index)

    def compute(self) -> Tensor:
        """The mean gap of all batches so far, in the dtype of torchmetrics (float32); NaN if there were no samples."""
        gap, samples, invalid = (getattr(self, name) for name in self._names)
        self._report(invalid)
        mean: Tensor = (gap / samples).to(self.dtype)
        return mean.squeeze(0) if self.average == "micro" else mean
