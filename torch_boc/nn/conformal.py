"""Conformal OOD test: valid p-values, flags and thresholds from held-out in-distribution samples."""

import math
import warnings
from typing import Any, Self

import torch
from torch import Tensor

from ..core.dtypes import to_wide
from ..functional.checks import check_share
from ..functional.conformal import (
    Threshold,
    bin_p_values,
    discovery_level,
    look_up_ranks,
    rank_p_values,
    threshold_rank,
)
from ..functional.per_sample import SampleStats
from ..functional.registry import scores
from ..functional.score_bins import FINEST, BinnedScores, bin_edges, count_bins
from .calibration_counts import CalibrationCounts

# With fewer held-out samples below a threshold, that some are tied is chance.
ENOUGH = 10


class ConformalTest(CalibrationCounts):
    """Detects OOD samples at a guaranteed false-positive rate, by conformal p-values.

    The p-value of a sample is the rank of its score among the scores of held-out in-distribution samples. If the sample
    is exchangeable with them, its p-value is at most `alpha` with probability at most `alpha`, whatever the classifier.
    A small p-value means that the sample scores lower than almost all held-out samples. Valid does not mean powerful:
    the detection rate depends on the score and the model. With n held-out samples, no p-value is below 1 / (n + 1).

    Calibrate it with samples that the classifier was not trained on: by `calibrate(logits)`, or by `update(batch)` for
    each batch of a validation loop. The state is a buffer of counts, whatever the number of samples: 768 KiB, or 48 KiB
    for each group of `groups="prediction"` and of your own. It is saved, moved and exported with the module. `merge`
    adds the counts of another test, and `all_reduced` those of all processes. Do not put a test that is being
    calibrated into a module that DistributedDataParallel wraps: it overwrites the buffers of all processes with those
    of the first.

    Args:
        score: a name in `torch_boc.functional.scores`. Samples with low scores get small p-values; with "-" before the
            name, those with high scores do. The default, GEN, detects OOD samples best. To detect wrong predictions of
            in-distribution samples, use "log_odds" or `Acceptance`. If the first held-out samples are given by
            `scores=`, numbers of any detector, the score is "given", and all methods take `scores=` instead of logits.
        groups: None, or what a sample must have in common with the held-out samples that it is compared with:
            "prediction", the predicted class, or "confidence", about the same confidence. The test is then valid within
            each group. Each group needs held-out samples; `flag` and `threshold` warn if a group has too few. Or the
            number of groups of your own, such as sites, languages or cameras: all methods then take `group=`, an
            integer from 0 on for each sample. Fix the groups before you see the samples. A sample of another group has
            no p-value and is flagged.
        resolution: the number of bins between a number and its double, a power of two. Scores in one bin are ties: the
            default of 1024 separates scores that differ by more than 1/1024 of their value. The default for
            `groups="prediction"` and your own groups is 64. `flag` and `threshold` warn if ties leave little to flag.
        dim: the class axis; 1 for segmentation, -1 for tokens. Logits of shape (N, C) do not need it.
        validate_args: whether to reject probabilities in the first batch: at once on a CPU, elsewhere in `calibrate`,
            `threshold` or `flag`, because `update` and `test` never wait for the device.

    Attributes:
        counts: a buffer of shape (groups, bins) in int64.
        invalid: a buffer, the number of rows with NaN or +inf, which are not counted.
        num_classes: the number of classes, or None before the first batch.

    >>> held_out = torch.linspace(1, 5, 99)[:, None] * torch.eye(3)[0]
    >>> test = ConformalTest(score="max_logit").calibrate(held_out)
    >>> new = torch.tensor([[0.9, 0.0, 0.0], [3.1, 0.0, 0.0]])
    >>> test(new)
    tensor([0.0100, 0.5300], dtype=torch.float64)
    >>> test.flag(new, alpha=0.05)
    tensor([ True, False])
    >>> test.threshold(0.05).score
    tensor(1.1631, dtype=torch.float64)
    """

    def calibrate(
        self, logits: Tensor | None = None, *, scores: Tensor | None = None, group: Tensor | None = None
    ) -> Self:
        """Replace all earlier held-out samples by these, logits of shape (N, C), and return the test.

        With `scores`, the samples are given by numbers of any shape that are higher for in-distribution samples.
        `group` is the group of each sample, for a test with groups of your own.

        Raises:
            ValueError: if there is no row, or a row has NaN or +inf.
        """
        return self._calibrate(logits, scores=scores, group=group)

    def update(
        self,
        preds: Tensor | SampleStats | None = None,
        *,
        scores: Tensor | None = None,
        group: Tensor | None = None,
    ) -> None:
        """Add a batch of held-out samples. No value is read back.

        Args:
            preds: logits of shape (N, C), or their statistics. Samples that are not `counted` there do not count here.
            scores: instead of logits, the scores of any detector, of any shape; higher = more in-distribution.
            group: with groups of your own, the group of each sample, of the shape of the logits without the class axis.
                Rows of other groups are counted in `invalid`.
        """
        self._count(*self._bin_held_out(preds, scores=scores, group=group))

    def _bin_held_out(self, preds: Tensor | SampleStats | None, **options: Any) -> tuple[list[BinnedScores], Tensor]:
        """The bins of a batch of `update`, and which of its samples are invalid."""
        binned, counted = self.bin_scores(preds, "held-out", **options), getattr(preds, "counted", None)
        return [binned], ~binned.valid if counted is None else counted & ~binned.valid

    def forward(self, logits: Tensor, group: Tensor | None = None) -> Tensor:
        """The p-value of each sample: `test(logits)`."""
        return self.test(logits, group=group)

    def test(
        self,
        logits: Tensor | SampleStats | BinnedScores | None = None,
        *,
        scores: Tensor | None = None,
        group: Tensor | None = None,
        smoothed: bool = False,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The p-value of each sample, of the shape of the logits without the class axis, on their device.

        Args:
            logits: the samples to test.
            scores: instead of logits, their scores, if the held-out samples were given by scores.
            group: the group of each sample, for a test with groups of your own.
            smoothed: by default, ties count against a small p-value, and the same sample always has the same p-value.
                Smoothed p-values break ties at random and are uniform for in-distribution samples.
            generator: the random numbers of smoothed p-values; by default torch's own generator.

        Returns:
            float64 (float32 on MPS); NaN for rows with NaN or +inf, or of an unknown group.
        """
        score_bins, group, valid, _ = self.bin_scores(logits, scores=scores, group=group)
        if smoothed:
            ranks = look_up_ranks(self.counts, self.counts.cumsum(-1), score_bins, group)
            uniform = to_wide(torch.rand(score_bins.shape, generator=generator, device=score_bins.device))
            p = rank_p_values(ranks, uniform)
        else:
            key = score_bins if group is None else group * self.counts.shape[-1] + score_bins
            table = self._cached("table", lambda: bin_p_values(self.counts))
            p = table.reshape(-1).index_select(0, key.reshape(-1)).reshape(score_bins.shape)
        return p.masked_fill(~valid, torch.nan)

    def flag(
        self,
        logits: Tensor | SampleStats | BinnedScores | None = None,
        alpha: float = 0.05,
        *,
        delta: float | None = None,
        scores: Tensor | None = None,
        group: Tensor | None = None,
    ) -> Tensor:
        """Which samples to review: those with a p-value of at most `alpha`, and those without one.

        The expected share of flagged in-distribution samples is at most `alpha`. With `delta=0.01`, the share itself is
        at most `alpha` with probability at least 99 % over the draw of the held-out set. With groups, this holds within
        each group, not for all at once. The first call after a calibration reads the number of held-out samples from
        the device; later calls read nothing.
        """
        binned, (level, _) = self.bin_scores(logits, scores=scores, group=group), self._level(alpha, delta)
        if isinstance(level, Tensor):
            level = level[0 if binned.group is None else binned.group]
        return ~(self.test(binned) > level)

    def discoveries(
        self,
        logits: Tensor | None = None,
        fdr: float = 0.1,
        *,
        scores: Tensor | None = None,
        group: Tensor | None = None,
    ) -> Tensor:
        """Which samples of this batch are OOD, at a false discovery rate of at most `fdr`.

        This is the procedure of Benjamini and Hochberg on the conservative p-values of the whole batch. To discover k
        among m samples, their p-values must be at most fdr k / m, which needs many held-out samples. Rows with NaN or
        +inf are discovered, too, and do not count among the m.
        """
        check_share("fdr", fdr)
        binned = self.bin_scores(logits, scores=scores, group=group)
        if not torch.compiler.is_compiling():
            self._cached(("fdr", fdr), lambda: self._check_rate(fdr))
        groups, bins = self.counts.shape
        tested = count_bins(binned.bin, binned.valid, bins, binned.group, groups)
        level = discovery_level(bin_p_values(self.counts), tested, fdr)
        return ~(self.test(binned) > level)

    def threshold(self, alpha: float = 0.05, *, delta: float | None = None) -> Threshold:
        """The score below which `flag` flags a sample; one for each group if there are groups.

        If the score has "-" before its name, it is minus the score. `rate_quantile` of the result tells how large the
        share of flagged in-distribution samples can be.
        """
        self.warn_of_invalid()
        _, ranks = self._level(alpha, delta)
        lowest = (self.counts.cumsum(-1).cpu() < ranks.unsqueeze(-1)).sum(-1)  # the bin of the k-th lowest score
        score = bin_edges(self.scoring.resolution)[lowest]
        if self.scoring.name in scores:
            sign = -1 if self.scoring.score.startswith("-") else 1
            score = sign * scores[self.scoring.name].value(sign * score)
        score = torch.where(ranks > 0, score, -torch.inf)
        which = slice(None) if self.scoring.groups else 0
        return Threshold(score[which], ranks[which], self.samples.cpu()[which])

    def _level(self, alpha: float, delta: float | None) -> tuple[Tensor | float, Tensor]:
        """The largest p-value that is flagged: `alpha`, or with `delta` a number for each group; and the ranks."""
        check_share("alpha", alpha)
        if torch.compiler.is_compiling() and delta is None:
            return alpha, self.counts
        level: tuple[Tensor | float, Tensor] = self._cached((alpha, delta), lambda: self._new_level(alpha, delta))
        return level

    def _new_level(self, alpha: float, delta: float | None) -> tuple[Tensor | float, Tensor]:
        """The level, with a warning if it is below the smallest p-value, or if ties leave little to flag."""
        if delta is not None:
            check_share("delta", delta)
        if type(self.counts) is not Tensor:  # a fake tensor has no values
            return alpha, self.counts
        self.refuse_probabilities()
        ranks = torch.tensor([threshold_rank(n, alpha, delta) for n in self.samples.tolist()])  # on the CPU
        first = self.scoring.impossible_groups(self.num_classes or 2)
        few = self.samples.cpu()[first:][ranks[first:] == 0]
        if len(few):
            # The rank is 1 from (1 - alpha)^n <= delta on.
            needed, level = math.ceil(1 / alpha) - 1, f"alpha={alpha}"
            if delta is not None:
                needed = max(needed, math.ceil(math.log(delta) / math.log1p(-alpha)))
                level += f" and delta={delta:.4g}"
            got = f"{few[0]}" if len(few) == 1 else f"{few.amin()} to {few.amax()}"
            where = f" in {len(few)} of {len(ranks) - first} groups" if self.scoring.groups else ""
            warnings.warn(
                f"nothing can be flagged{where} at {level}, which needs at least {needed} held-out samples, got {got}",
                stacklevel=6,
            )
        upto = self.counts.cumsum(-1).cpu()
        below = torch.where(upto < ranks.unsqueeze(-1), upto, 0).amax(-1)  # held-out samples below the threshold
        if tied := int(((below + 1) * 2 < ranks).logical_and(ranks >= ENOUGH).sum()):
            where = f" in {tied} of {len(ranks)} groups" if self.scoring.groups else ""
            finer = min(16 * self.scoring.resolution, FINEST)
            warnings.warn(
                f"far fewer than alpha={alpha} of the samples are flagged{where}, because many held-out scores are "
                f"tied at the threshold; resolution={finer} may tell them apart",
                stacklevel=6,
            )
        return alpha if delta is None else ranks.to(self.counts.device) / to_wide(self.samples + 1), ranks

    def _check_rate(self, fdr: float) -> None:
        """Warn if held-out samples are so few that nothing is discovered unless a tenth of a batch is."""
        if type(self.counts) is Tensor and (share := 1 / (fdr * (int(self.samples.sum()) + 1))) > 0.1:
            enough = math.ceil(10 / fdr) - 1
            warnings.warn(
                f"at fdr={fdr} nothing is discovered unless {min(share, 1.0):.0%} of a batch is, because so few "
                f"held-out samples give no smaller p-values; use {enough} or more",
                stacklevel=5,
            )
