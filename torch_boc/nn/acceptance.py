"""Which predictions may go out without a person: a threshold with a promised error, and sets of classes."""

import math
import warnings
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from ..core.dtypes import to_wide
from ..functional.checks import check_share
from ..functional.conformal import threshold_rank
from ..functional.per_sample import SampleStats, sample_stats
from ..functional.score_bins import BinnedScores, bin_edges, join_group, score_bin
from ..functional.selective import (
    AcceptanceThreshold,
    bin_predictions,
    class_log_odds,
    lowest_accepted_bin,
    suggest_remedy,
    target_log_odds,
)
from .calibration_counts import CalibrationCounts

# The rows of counts of a group: predictions that are right, and wrong, by their own score; wrong ones by the target's,
# which are in the group of the target with `groups="prediction"`.
RIGHT, WRONG, MISSED = range(3)


class Acceptance(CalibrationCounts):
    """Decides which predictions may go out unseen, if at most a given share of those may be wrong.

    The threshold is chosen on held-out samples with targets, such that the error of the accepted predictions is at most
    `max_error` with probability at least 1 - `delta` over the draw of the held-out set, whatever the classifier is; the
    method is in `torch_boc.functional.selective`. The score is the log odds of the prediction. `ConformalTest` answers
    another question: which samples are unfamiliar.

    The promise is for new samples like the held-out ones. Drift voids it, and so do held-out samples that the
    classifier was trained on, or that its checkpoint was chosen on. So do logits of a calibrator with many weights,
    such as vector or vector scaling, that was fitted on the same samples: fit it on others. `DriftMonitor` watches
    for drift, and `RiskMonitor` audits what was accepted.

    Calibrate it with `calibrate(logits, target)`, or with `update(logits, target)` for each batch of a validation loop.
    The state is a buffer of counts, whatever the number of samples: 2.25 MiB, or 144 KiB for each class with
    `groups="prediction"`. `merge`, `gathered`, `state_dict` and devices are as for `ConformalTest`. Before a model with
    it is compiled or exported, call `threshold` or `accept` once, so that the threshold is known.

    Args:
        groups: None, or "prediction": the promise then holds for the predictions of each class, and each class needs
            held-out samples. Of these C promises, up to one in 20 is broken on average at a delta of 0.05.
        num_groups: in place of `groups`, the number of groups of your own, such as sites, languages or cameras. All
            methods but `sets` then take `group=`, an integer from 0 on for each sample, and the guarantee holds within
            each group. Predictions for samples of another group are not accepted.
        num_classes: this and the following arguments are as for `ConformalTest`.

    >>> confidence = torch.linspace(0, 6, 2000)
    >>> target = (torch.arange(2000) % 5 == 0) & (confidence < 3)  # every fifth is wrong, unless the model is sure
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

    kinds = 3
    expected = "held-out logits without NaN and +inf, and targets that are classes"

    def __init__(
        self,
        groups: str | None = None,
        *,
        num_groups: int | None = None,
        num_classes: int | None = None,
        resolution: int | None = None,
        dim: int | None = None,
        validate_args: bool = True,
    ) -> None:
        if groups not in (None, "prediction"):
            raise ValueError(f"expected groups as None or 'prediction', got {groups!r}")
        how: dict[str, Any] = {"num_classes": num_classes, "resolution": resolution, "dim": dim}
        how["num_groups"] = num_groups
        super().__init__("log_odds", 1.0, groups, validate_args=validate_args, **how)

    @property
    def samples(self) -> Tensor:
        """The number of held-out samples in each group, int64, on the device."""
        return self.by_kind[:, :MISSED].sum((1, 2))

    @property
    def by_kind(self) -> Tensor:
        """The counts of shape (groups, 3, places): right and wrong predictions, and wrong ones by the target's score.

        `torch_boc.functional.aurc` and others take the first two.
        """
        return self.counts.view(-1, self.kinds, self.counts.shape[-1])

    def _adds_up(self) -> bool:
        """As for `ConformalTest`, and each wrong prediction has a place by the score of its target, too."""
        wrong, missed = self.by_kind[:, WRONG:].sum(-1).unbind(1)
        if self.scoring.groups == "prediction":  # these are in the group of the prediction, and of the target
            wrong, missed = wrong.sum(), missed.sum()
        return super()._adds_up() and (type(self.counts) is not Tensor or torch.equal(wrong, missed))

    def calibrate(self, logits: Tensor, target: Tensor, *, group: Tensor | None = None) -> Self:
        """Take these held-out samples, logits of shape (N, C), in place of all earlier ones, and return the object.

        Raises:
            ValueError: if there is no row, a row has NaN or +inf, or a target is no class.
        """
        return self._calibrate(logits, target, group=group)

    def update(
        self,
        preds: Tensor | SampleStats,
        target: Tensor | None = None,
        *,
        dim: int | None = None,
        group: Tensor | None = None,
    ) -> None:
        """Add a batch of held-out samples. No value is read back.

        Args:
            preds: logits of shape (N, C), or their statistics, gathered with targets and `extras=["log_odds"]`. Samples
                that are not `counted` there do not count here.
            target: class indices of shape (N,).
            dim: the class axis of the logits, if it is not that of this object.
            group: with `num_groups`, the group of each sample, of shape (N,). Rows of other groups are counted in
                `invalid`.
        """
        self._memory = None
        if isinstance(preds, Tensor) and target is None:
            raise ValueError("expected targets, which say which predictions are right, got none")
        rows = self.checked(preds, "held-out", dim=dim, target=target)
        stats = sample_stats(rows, target, extras=["log_odds"]) if isinstance(rows, Tensor) else rows
        placing, wrong = bin_predictions(stats, self.scoring)
        placing = join_group(placing, group, self.scoring.groups)
        first = self.kinds * (torch.zeros_like(placing.bin) if placing.group is None else placing.group)
        self._count(placing._replace(group=first + wrong), stats.counted)
        missed = score_bin(target_log_odds(stats), self.scoring.resolution)
        if self.scoring.groups == "prediction":
            first = self.kinds * stats.target.clamp(0, self.num_classes - 1)  # type: ignore[union-attr, operator]
        self.add(BinnedScores(missed, first + MISSED, placing.valid & wrong))

    def forward(self, logits: Tensor, group: Tensor | None = None) -> Tensor:
        """Which predictions are accepted at `max_error=0.01` and `delta=0.05`."""
        return self.accept(logits, group=group)

    def accept(
        self, logits: Tensor, max_error: float = 0.01, delta: float = 0.05, *, group: Tensor | None = None
    ) -> Tensor:
        """Which predictions may go out unseen: booleans of the shape of the logits without the class axis.

        With probability at least 1 - `delta` over the draw of the held-out set, at most a share of `max_error` of the
        accepted predictions is wrong. Rows with NaN or +inf are not accepted. If nothing can be accepted, a warning
        says what would do. The first call after a calibration reads the counts from the device; later calls read
        nothing.
        """
        return self.accepted_at(self.bin_scores(logits, group=group), max_error, delta)

    def accepted_at(self, placing: BinnedScores, max_error: float = 0.01, delta: float = 0.05) -> Tensor:
        """Which samples are accepted, of which `place` has said where they are."""
        lowest = self._lowest(max_error, delta)
        return placing.valid & (placing.bin >= lowest[0 if placing.group is None else placing.group])

    def threshold(self, max_error: float = 0.01, *, delta: float = 0.05) -> AcceptanceThreshold:
        """The log odds from which on `accept` accepts predictions, and the share of held-out samples that it accepts.

        There is one for each group if there are groups.
        """
        self.check_calibrated()
        if invalid := int(self.invalid):
            warnings.warn(f"{invalid} held-out rows were left out; expected {self.expected}", stacklevel=2)
        lowest = self._lowest(max_error, delta).cpu()
        coverage, samples = self.coverage(self, max_error, delta).cpu(), self.samples.cpu()
        found = AcceptanceThreshold(bin_edges(self.scoring.resolution)[lowest], coverage, samples)
        return found if self.scoring.groups else AcceptanceThreshold(*(x[0] for x in found))

    def coverage(self, other: "Acceptance", max_error: float = 0.01, delta: float = 0.05) -> Tensor:
        """The share of the held-out samples of another one that this one accepts, for each group, on the device."""
        here, lowest = other.by_kind[:, :MISSED].sum(1), self._lowest(max_error, delta)
        places = torch.arange(here.shape[-1], device=here.device)
        return to_wide(torch.where(places >= lowest.unsqueeze(-1), here, 0).sum(-1)) / to_wide(here.sum(-1))

    def sets(self, logits: Tensor, coverage: float = 0.95, *, nonempty: bool = False, by_class: bool = False) -> Tensor:
        """The classes that each sample can have: booleans of the shape of the logits.

        The set of a new sample contains its class with probability at least `coverage` over samples and held-out
        samples. It holds all classes whose probability is high enough (LAC; Sadinle and others, 2019), which gives the
        smallest sets on average. A set is empty if no class has enough: at a coverage below the accuracy this happens
        to in-distribution samples, too, and their top class is often correct. It does not mean that a sample is OOD:
        ask `ConformalTest`. Rows with NaN or +inf have an empty set. Groups of your own are not distinguished.

        Args:
            logits: the samples.
            coverage: the probability that a set contains the class.
            nonempty: whether each set contains the top class. The threshold of the other classes is higher then, so
                that the coverage stays what it is, or becomes the accuracy if that is higher.
            by_class: whether the coverage is guaranteed for the samples of each class by itself, which takes
                `groups="prediction"`. Sets hold every class with too few held-out samples.
        """
        check_share("coverage", coverage)
        if by_class and self.scoring.groups != "prediction":
            raise ValueError("expected groups='prediction' for sets by class, got other groups; make a new Acceptance")
        rows = self.checked(logits)
        how = coverage, nonempty, by_class
        least = self._cached_in_graph(("sets", *how), lambda: self._least_log_odds(*how))
        number = class_log_odds(rows)
        mask: Tensor = number.float() >= least
        if nonempty:
            classes = torch.arange(rows.shape[-1], device=rows.device)
            mask |= (classes == rows.argmax(-1, keepdim=True)) & ~number.isnan()
        return mask.movedim(-1, -1 if self.dim is None else self.dim)

    def _lowest(self, max_error: float, delta: float) -> Tensor:
        """The lowest place of each group at which predictions are accepted."""
        check_share("max_error", max_error)
        check_share("delta", delta)
        lowest: Tensor = self._cached_in_graph((max_error, delta), lambda: self._new_lowest(max_error, delta))
        return lowest

    def _cached_in_graph(self, what: object, compute: Callable[[], Any]) -> Any:
        """As `_cached`, but compiled code takes what was computed before, because it cannot read the counts."""
        if not torch.compiler.is_compiling():
            return self._cached(what, compute)
        known = {} if self._memory is None else self._memory[2]
        if what not in known:
            raise ValueError(
                "expected a threshold that is known before the model is compiled or exported, got none; "
                "call accept or threshold once with the same max_error and delta"
            )
        return known[what]

    def _new_lowest(self, max_error: float, delta: float) -> Tensor:
        if type(self.counts) is not Tensor:  # a fake tensor has no values
            return torch.zeros(len(self.samples), dtype=torch.int64, device=self.counts.device)
        self.refuse_probabilities()
        by_group = self.by_kind.cpu()
        lowest = [lowest_accepted_bin(group[RIGHT], group[WRONG], max_error, delta) for group in by_group]
        nothing = [group for group, place in zip(by_group, lowest, strict=True) if place == by_group.shape[-1]]
        if nothing:
            largest = max(nothing, key=lambda group: int(group[:MISSED].sum()))
            where = f" in {len(nothing)} of {len(lowest)} groups, of which the largest has"
            level = f"max_error={max_error} and delta={delta:.4g}" + (where if self.scoring.groups else ":")
            warnings.warn(
                f"nothing can be accepted at {level} {int(largest[:MISSED].sum())} held-out samples, "
                f"{int(largest[WRONG].sum())} of them wrong; "
                f"{suggest_remedy(largest[RIGHT], largest[WRONG], max_error, delta)} would do",
                stacklevel=6,
            )
        return torch.tensor(lowest, device=self.counts.device)

    def _least_log_odds(self, coverage: float, nonempty: bool, by_class: bool) -> Tensor:
        """The log odds from which on a class is in a set; one for each class if they differ."""
        if type(self.counts) is not Tensor:
            return torch.zeros((), device=self.counts.device)
        self.refuse_probabilities()
        right, missed = self.by_kind[:, RIGHT].clone(), self.by_kind[:, MISSED]
        if nonempty:  # the top class is in the set, wherever it scores
            right[:, -1] = right.sum(-1)
            right[:, :-1] = 0
        of_target = (right + missed).cpu()
        of_target = of_target if by_class else of_target.sum(0, keepdim=True)
        samples = of_target.sum(-1)
        ranks = torch.tensor([threshold_rank(n, 1.0 - coverage) for n in samples.tolist()])
        if few := int((ranks == 0).sum()):
            needed = math.ceil(1 / (1.0 - coverage) - 1e-9) - 1
            which, where = (
                ("every set holds", f"{few} of {len(ranks)} classes") if by_class else ("sets hold", "all classes")
            )
            warnings.warn(
                f"{which} {where} at coverage={coverage}, which takes at least {needed}: "
                f"{int(samples.amin())} held-out samples are too few",
                stacklevel=5,
            )
        place = (of_target.cumsum(-1) < ranks.unsqueeze(-1)).sum(-1)  # 0 for rank 0: the score of the lowest is -inf
        least = bin_edges(self.scoring.resolution)[place].to(self.counts.device, torch.float32)
        return least if by_class else least[0]
