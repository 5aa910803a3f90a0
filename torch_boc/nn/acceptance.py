"""Selective prediction: a threshold with a guaranteed error among accepted predictions, and prediction sets."""

import math
import warnings
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from ..core.dtypes import to_wide
from ..core.tally import is_class
from ..functional.checks import check_share
from ..functional.conformal import threshold_rank
from ..functional.per_sample import SampleStats, sample_stats
from ..functional.score_bins import BinnedScores, bin_edges, join_group, score_bin
from ..functional.selective import (
    AcceptanceThreshold,
    class_log_odds,
    lowest_accepted_bin,
    suggest_remedy,
    target_log_odds,
)
from .calibration_counts import CalibrationCounts

# The rows of counts of a group: correct and wrong predictions by their own score; wrong ones by the target's score,
# which are in the group of the target with `groups="prediction"`.
CORRECT, WRONG, MISSED = range(3)


class Acceptance(CalibrationCounts):
    """Selective prediction with a guaranteed error rate: which predictions to accept, and which to review.

    The threshold is chosen on held-out samples with targets. With probability at least 1 - `delta` over the draw of the
    held-out set, at most a share of `max_error` of the accepted predictions is wrong, whatever the classifier;
    `torch_boc.functional.selective` has the method. The score is the log odds of the prediction. To detect OOD samples,
    use `ConformalTest`.

    **The condition: new samples are exchangeable with the held-out ones.** Drift voids the guarantee, and so does a
    held-out set that the classifier was trained on, or that its checkpoint was chosen on. A calibrator with many
    weights, such as matrix scaling, voids it if it was fitted on the same samples: fit it on others. `DriftMonitor`
    watches for drift, and `RiskMonitor` audits accepted predictions.

    Calibrate it by `calibrate(logits, target)`, or by `update(logits, target)` for each batch of a validation loop. The
    state is a buffer of counts, whatever the number of samples: 2.25 MiB, or 144 KiB for each class with
    `groups="prediction"`. `merge`, `all_reduced`, `state_dict` and devices are as for `ConformalTest`. Before a model
    with it is compiled or exported, call `threshold` or `accept` once to compute the threshold.

    Args:
        groups: None, or "prediction": the guarantee then holds within the predictions of each class, and each class
            needs held-out samples. Or the number of groups of your own, such as sites, languages or cameras: all
            methods but `sets` then take `group=`, an integer from 0 on for each sample, and the guarantee holds within
            each group. Predictions for samples of another group are not accepted. Of these guarantees, up to one in 20
            is broken on average at a delta of 0.05.
        resolution: this and the following arguments are as for `ConformalTest`.

    >>> confidence = torch.linspace(0, 6, 2000)
    >>> target = (torch.arange(2000) % 5 == 0) & (confidence < 3)  # every fifth of the less confident is wrong
    >>> logits = confidence[:, None] * torch.eye(2)[0]
    >>> acceptance = Acceptance().calibrate(logits, target.long())
    >>> score, coverage, samples = acceptance.threshold(0.01, delta=0.05)
    >>> print(f"accept from log odds of {score:.2f} on: {coverage:.0%} of {samples} held-out samples")
    accept from log odds of 2.94 on: 51% of 2000 held-out samples
    >>> acceptance.accept(torch.tensor([[5.0, 0.0], [2.0, 0.0]]), max_error=0.01)
    tensor([ True, False])
    >>> acceptance.sets(torch.tensor([[5.0, 0.0], [0.2, 0.0]]), coverage=0.95)
    tensor([[ True, False],
            [ True,  True]])
    """

    kinds, groupings = 3, ("prediction",)
    expected = "held-out logits without NaN and +inf, and targets that are classes"

    def __init__(
        self,
        groups: str | int | None = None,
        *,
        resolution: int | None = None,
        dim: int | None = None,
        validate_args: bool = True,
    ) -> None:
        super().__init__(
            "log_odds",
            groups=groups,
            resolution=resolution,
            dim=dim,
            validate_args=validate_args,
        )

    @property
    def samples(self) -> Tensor:
        """The number of held-out samples in each group, int64, on the device."""
        return self._by_kind[:, :MISSED].sum((1, 2))

    @property
    def _by_kind(self) -> Tensor:
        """The counts of shape (groups, 3, bins): of correct and wrong predictions, and of wrong ones by the target."""
        return self.counts.view(-1, self.kinds, self.counts.shape[-1])

    def _adds_up(self) -> bool:
        """As for `ConformalTest`, and each wrong prediction is counted by the score of its target, too."""
        wrong, missed = self._by_kind[:, WRONG:].sum(-1).unbind(1)
        if self.scoring.groups == "prediction":  # these are in the group of the prediction, and of the target
            wrong, missed = wrong.sum(), missed.sum()
        return super()._adds_up() and (type(self.counts) is not Tensor or torch.equal(wrong, missed))

    def calibrate(self, logits: Tensor, target: Tensor, *, group: Tensor | None = None) -> Self:
        """Replace all earlier held-out samples by these, logits of shape (N, C), and return the object.

        Raises:
            ValueError: if there is no row, a row has NaN or +inf, or a target is no class.
        """
        return self._calibrate(logits, target, group=group)

    def update(
        self,
        preds: Tensor | SampleStats,
        target: Tensor | None = None,
        *,
        group: Tensor | None = None,
    ) -> None:
        """Add a batch of held-out samples. No value is read back.

        Args:
            preds: logits of shape (N, C), or their `sample_stats` with targets and `extras=["log_odds"]`. Samples that
                are not `counted` there do not count here.
            target: class indices of shape (N,).
            group: with groups of your own, the group of each sample, of shape (N,). Rows of other groups are counted in
                `invalid`.
        """
        self._count(*self._bin_held_out(preds, target, group))

    def _bin_held_out(
        self, preds: Tensor | SampleStats, target: Tensor | None = None, group: Tensor | None = None
    ) -> tuple[list[BinnedScores], Tensor]:
        """The bins of a batch of `update`, by the score of the prediction and of a target that was missed."""
        if isinstance(preds, Tensor) and target is None:
            raise ValueError("expected targets, which tell the correct predictions, got none")
        rows = self.checked(preds, "held-out", target)
        stats = sample_stats(rows, target, extras=["log_odds"]) if isinstance(rows, Tensor) else rows
        if stats.target is None or stats.log_odds is None:
            raise ValueError("expected statistics with targets and log_odds, got none")
        both = torch.stack([stats.log_odds, target_log_odds(stats)])
        bins, missed = score_bin(both, self.scoring.resolution).unbind()
        prediction, wrong = stats.coins.prediction, stats.coins.prediction != stats.target
        valid = is_class(stats.target, stats.num_classes) & (both[0] == both[0])
        valid = valid if stats.counted is None else valid & stats.counted
        by_class = self.scoring.groups == "prediction"
        binned = BinnedScores(bins, prediction if by_class else None, valid, prediction)
        binned = join_group(binned, group, self.scoring.groups)
        kind, of_target = wrong, None
        if binned.group is not None:
            kind = wrong + self.kinds * binned.group
            of_target = self.kinds * (stats.target.clamp(0, stats.num_classes - 1) if by_class else binned.group)
        invalid = ~binned.valid if stats.counted is None else stats.counted & ~binned.valid
        targets = BinnedScores(missed + MISSED * self.counts.shape[-1], of_target, binned.valid & wrong)
        return [binned._replace(group=kind), targets], invalid

    def forward(self, logits: Tensor, group: Tensor | None = None) -> Tensor:
        """Which predictions are accepted at `max_error=0.01` and `delta=0.05`."""
        return self.accept(logits, group=group)

    def accept(
        self,
        logits: Tensor | SampleStats | BinnedScores,
        max_error: float = 0.01,
        delta: float = 0.05,
        *,
        group: Tensor | None = None,
    ) -> Tensor:
        """Which predictions are accepted: booleans of the shape of the logits without the class axis.

        With probability at least 1 - `delta` over the draw of the held-out set, at most a share of `max_error` of the
        accepted predictions is wrong. Rows with NaN or +inf are not accepted. If nothing can be accepted, a warning
        suggests a remedy. The first call after a calibration reads the counts from the device; later calls read
        nothing.
        """
        binned, lowest = self.bin_scores(logits, group=group), self._lowest(max_error, delta)
        return binned.valid & (binned.bin >= lowest[0 if binned.group is None else binned.group])

    def threshold(self, max_error: float = 0.01, *, delta: float = 0.05) -> AcceptanceThreshold:
        """The lowest log odds that `accept` accepts, and the share of held-out samples that it accepts.

        There is one for each group if there are groups.
        """
        self.warn_of_invalid()
        lowest = self._lowest(max_error, delta).cpu()
        coverage, samples = self.coverage(self, max_error, delta).cpu(), self.samples.cpu()
        thresholds = AcceptanceThreshold(bin_edges(self.scoring.resolution)[lowest], coverage, samples)
        return thresholds if self.scoring.groups else AcceptanceThreshold(*(x[0] for x in thresholds))

    def coverage(self, other: "Acceptance", max_error: float = 0.01, delta: float = 0.05) -> Tensor:
        """The share of the held-out samples of another one that this one accepts, for each group, on the device."""
        samples, lowest = other._by_kind[:, :MISSED].sum(1), self._lowest(max_error, delta)
        bins = torch.arange(samples.shape[-1], device=samples.device)
        return to_wide(torch.where(bins >= lowest.unsqueeze(-1), samples, 0).sum(-1)) / to_wide(samples.sum(-1))

    def sets(self, logits: Tensor, coverage: float = 0.95, *, nonempty: bool = False, by_class: bool = False) -> Tensor:
        """Prediction sets: which classes each sample can have, booleans of the shape of the logits.

        The set of a new sample contains its class with probability at least `coverage` over samples and held-out
        samples. It holds all classes whose probability is high enough (LAC; Sadinle and others, 2019), which gives the
        smallest sets on average. A set is empty if no class has enough. At a coverage below the accuracy this happens
        to in-distribution samples, too, and their top class is often correct: an empty set does not mean OOD. Rows with
        NaN or +inf have an empty set. Groups of your own are not distinguished.

        Args:
            logits: the samples.
            coverage: the probability that a set contains the class.
            nonempty: whether each set contains the top class. The threshold of the other classes is then higher, and
                the coverage stays the same, or becomes the accuracy if that is higher.
            by_class: whether the coverage is guaranteed within the samples of each class, which needs
                `groups="prediction"`. Every set holds the classes with too few held-out samples.
        """
        check_share("coverage", coverage)
        if by_class and self.scoring.groups != "prediction":
            raise ValueError("expected groups='prediction' for sets by class, got other groups; make a new Acceptance")
        rows = self.checked(logits)
        kind = coverage, nonempty, by_class
        least = self._cached_in_graph(("sets", *kind), lambda: self._least_log_odds(*kind))
        log_odds = class_log_odds(rows)
        mask: Tensor = log_odds.float() >= least
        if nonempty:
            classes = torch.arange(rows.shape[-1], device=rows.device)
            mask |= (classes == rows.argmax(-1, keepdim=True)) & ~log_odds.isnan()
        return mask.movedim(-1, -1 if self.dim is None else self.dim)

    def _lowest(self, max_error: float, delta: float) -> Tensor:
        """The lowest accepted bin of each group."""
        check_share("max_error", max_error)
        check_share("delta", delta)
        lowest: Tensor = self._cached_in_graph((max_error, delta), lambda: self._new_lowest(max_error, delta))
        return lowest

    def _cached_in_graph(self, key: object, compute: Callable[[], Any]) -> Any:
        """As `_cached`, but compiled code takes what was computed before, because it cannot read the counts."""
        if not torch.compiler.is_compiling():
            return self._cached(key, compute)
        computed = {} if self._memory is None else self._memory[2]
        if key not in computed:
            raise ValueError(
                "expected a threshold that is known before the model is compiled or exported, got none; "
                "call accept or threshold once with the same max_error and delta"
            )
        return computed[key]

    def _new_lowest(self, max_error: float, delta: float) -> Tensor:
        if type(self.counts) is not Tensor:  # a fake tensor has no values
            return torch.zeros(len(self.samples), dtype=torch.int64, device=self.counts.device)
        self.refuse_probabilities()
        by_group = self._by_kind.cpu()
        lowest = [lowest_accepted_bin(group[CORRECT], group[WRONG], max_error, delta) for group in by_group]
        refused = [group for group, lowest_bin in zip(by_group, lowest, strict=True) if lowest_bin == group.shape[-1]]
        if refused:
            largest = max(refused, key=lambda group: int(group[:MISSED].sum()))
            where = f" in {len(refused)} of {len(lowest)} groups, of which the largest has"
            level = f"max_error={max_error} and delta={delta:.4g}" + (where if self.scoring.groups else ":")
            remedy = suggest_remedy(largest[CORRECT], largest[WRONG], max_error, delta)
            warnings.warn(
                f"nothing can be accepted at {level} {int(largest[:MISSED].sum())} held-out samples, "
                f"{int(largest[WRONG].sum())} of them wrong; it needs {remedy}",
                stacklevel=6,
            )
        return torch.tensor(lowest, device=self.counts.device)

    def _least_log_odds(self, coverage: float, nonempty: bool, by_class: bool) -> Tensor:
        """The lowest log odds of a class in a set; one for each class if they differ."""
        if type(self.counts) is not Tensor:
            return torch.zeros((), device=self.counts.device)
        self.refuse_probabilities()
        correct, missed = self._by_kind[:, CORRECT].clone(), self._by_kind[:, MISSED]
        if nonempty:  # the top class is in the set, wherever it scores
            correct[:, -1] = correct.sum(-1)
            correct[:, :-1] = 0
        of_target = (correct + missed).cpu()
        of_target = of_target if by_class else of_target.sum(0, keepdim=True)
        samples = of_target.sum(-1)
        ranks = torch.tensor([threshold_rank(n, 1.0 - coverage) for n in samples.tolist()])
        if few := int((ranks == 0).sum()):
            needed = math.ceil(1 / (1.0 - coverage) - 1e-9) - 1
            which = f"every set holds {few} of {len(ranks)} classes" if by_class else "sets hold all classes"
            warnings.warn(
                f"{which} at coverage={coverage}, which needs at least {needed} held-out samples, "
                f"got {int(samples.amin())}",
                stacklevel=5,
            )
        lowest = (of_target.cumsum(-1) < ranks.unsqueeze(-1)).sum(-1)  # 0 for rank 0: the score of the lowest is -inf
        least = bin_edges(self.scoring.resolution)[lowest].to(self.counts.device, torch.float32)
        return least if by_class else least[0]
