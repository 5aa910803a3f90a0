"""A test that holds: valid p-values, flags and thresholds from held-out in-distribution samples."""

import math
import warnings
from typing import Self

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
    """Tests whether samples come from the distribution of held-out samples: valid p-values, whatever the classifier is.

    The p-value of a sample is the rank of its score among the scores of held-out in-distribution samples. If the sample
    comes from the same distribution, its p-value is at most `alpha` with a chance of at most `alpha`. A small p-value
    means that the sample scores lower than almost all held-out samples. Valid does not mean powerful: how many
    unfamiliar samples are found depends on the score. With n held-out samples, no p-value is below 1 / (n + 1).

    Calibrate it with samples that the classifier was not trained on: with `calibrate(logits)`, or with `update(batch)`
    for each batch of a validation loop. The state is a buffer of counts, whatever the number of samples: 768 KiB, or 48
    KiB for each group of `groups="prediction"` and `num_groups`. It is saved, moved and exported with the module.
    `merge` adds the counts of another test, and `gathered` those of all processes. Do not put a test that is being
    calibrated into a module that DistributedDataParallel wraps, because that overwrites the buffers of all processes
    with those of the first.

    Args:
        score: a name in `torch_boc.functional.scores`. Samples with low scores get small p-values; with "-" before the
            name, those with high scores do. The default, GEN, finds unfamiliar samples best. To find wrong predictions
            of familiar samples, take "log_odds", or `Acceptance`. If the first held-out samples are given by
            `scores=`, numbers of any detector, the score is "given", and all methods take `scores=` in place of logits.
        temperature: the logits are divided by this number before they are scored; `score="dominance"` with a
            temperature of 4 is the tempered coins.
        groups: None, or what a sample must have in common with the held-out samples that it is compared with:
            "prediction", the predicted class, or "confidence", about the same confidence. The test is then valid within
            each group. Each group needs held-out samples; `flag` and `threshold` warn if a group has too few.
        num_groups: in place of `groups`, the number of groups of your own, such as sites, languages or cameras. All
            methods then take `group=`, an integer from 0 on for each sample. Fix the groups before you see the samples.
            A sample of another group has no p-value and is flagged.
        num_classes: the number of classes, checked against the logits; by default that of the first batch.
        resolution: the number of places between a number and its double, a power of two. Scores in one place are ties:
            1024 places, the default, separate scores that differ by more than 1/1024 of their value. The default for
            `groups="prediction"` and `num_groups` is 64. `flag` and `threshold` warn if ties leave little to flag.
        dim: the class axis; 1 for segmentation, -1 for tokens. Logits of shape (N, C) do not need it.
        validate_args: whether to refuse probabilities in the first batch. On a CPU, the error comes at once; elsewhere
            it comes from `calibrate`, `threshold` or `flag`, so that `update` and `test` never wait for the device.

    Attributes:
        counts: a buffer of shape (groups, places) in int64.
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
        """Take these held-out samples, logits of shape (N, C), in place of all earlier ones, and return the test.

        With `scores`, the samples are given by numbers of any shape that are higher for in-distribution samples.
        `group` is the group of each sample, for a test with `num_groups`.

        Raises:
            ValueError: if there is no row, or a row has NaN or +inf.
        """
        return self._calibrate(logits, scores=scores, group=group)

    def update(
        self,
        preds: Tensor | SampleStats | None = None,
        counted: Tensor | None = None,
        *,
        dim: int | None = None,
        scores: Tensor | None = None,
        group: Tensor | None = None,
    ) -> None:
        """Add a batch of held-out samples. No value is read back.

        Args:
            preds: logits of shape (N, C), or their statistics.
            counted: booleans, which samples count; by default all, or those that the statistics counts.
            dim: the class axis of the logits, if it is not that of the test.
            scores: in place of logits, the scores of any detector, of any shape; higher = more in-distribution.
            group: for a test with `num_groups`, the group of each sample, of the shape of the logits without the class
                axis. Rows of other groups are counted in `invalid`.
        """
        placing = self.bin_scores(preds, "held-out", dim=dim, scores=scores, group=group)
        if counted is None:
            counted = preds.counted if isinstance(preds, SampleStats) else None
        else:
            counted = counted.reshape(placing.valid.shape)
            placing = placing._replace(valid=placing.valid & counted)
        self._count(placing, counted)

    def forward(self, logits: Tensor, group: Tensor | None = None) -> Tensor:
        """The p-value of each sample: `test(logits)`."""
        return self.test(logits, group=group)

    def test(
        self,
        logits: Tensor | None = None,
        *,
        scores: Tensor | None = None,
        group: Tensor | None = None,
        smoothed: bool = False,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The p-value of each sample, of the shape of the logits without the class axis, on their device.

        Args:
            logits: the samples to test.
            scores: in place of logits, their scores, if the held-out samples were given by scores.
            group: the group of each sample, for a test with `num_groups`.
            smoothed: by default, ties count against a small p-value, and the same sample always has the same p-value.
                Smoothed p-values break ties by chance and are uniform for in-distribution samples.
            generator: where the chance of smoothed p-values comes from; by default torch's own generator.

        Returns:
            float64 (float32 on MPS); NaN for rows with NaN or +inf, or of an unknown group.
        """
        placing = self.bin_scores(logits, scores=scores, group=group)
        return self.p_values_at(placing, smoothed=smoothed, generator=generator)

    def flag(
        self,
        logits: Tensor | None = None,
        alpha: float = 0.05,
        *,
        delta: float | None = None,
        scores: Tensor | None = None,
        group: Tensor | None = None,
    ) -> Tensor:
        """Which samples a person should look at: those with a p-value of at most `alpha`, and those without one.

        The expected share of flagged in-distribution samples is at most `alpha`. With `delta=0.01`, the share
        itself is at most `alpha` for 99 of 100 sets of held-out samples. With groups, this holds for each
        group by itself, not for all at once. The first call after a calibration reads the number of held-out samples
        from the device; later calls read nothing.
        """
        placing, (level, _) = (
            self.bin_scores(logits, scores=scores, group=group),
            self._level(check_share("alpha", alpha), delta),
        )
        if isinstance(level, Tensor):
            level = level[0] if placing.group is None else level[placing.group]
        return ~(self.p_values_at(placing) > level)

    def discoveries(
        self,
        logits: Tensor | None = None,
        fdr: float = 0.1,
        *,
        scores: Tensor | None = None,
        group: Tensor | None = None,
    ) -> Tensor:
        """Which samples of this batch are unfamiliar; the expected share of in-distribution ones among them is `fdr`.

        This is the procedure of Benjamini and Hochberg on the conservative p-values of the whole batch. To find k among
        m samples, their p-values must be at most fdr k / m, so that it finds nothing where the held-out samples are
        few. Rows with NaN or +inf are found, too, and do not count among the m.
        """
        check_share("fdr", fdr)
        placing = self.bin_scores(logits, scores=scores, group=group)
        if not torch.compiler.is_compiling():
            self._cached(("fdr", fdr), lambda: self._check_rate(fdr))
        groups, places = self.counts.shape
        tested = count_bins(placing.bin, placing.valid, places, placing.group, groups)
        level = discovery_level(bin_p_values(self.counts), tested, fdr)
        return ~(self.p_values_at(placing) > level)

    def threshold(self, alpha: float = 0.05, *, delta: float | None = None) -> Threshold:
        """The score below which `flag` flags a sample; one for each group if there are groups.

        If the score has "-" before its name, it is minus the score.

        `rate_quantile` of the result tells how large the share of flagged in-distribution samples can be.
        """
        check_share("alpha", alpha)
        self.refuse_probabilities()
        self.check_calibrated()
        if invalid := int(self.invalid):
            warnings.warn(f"{invalid} held-out rows of logits with NaN or +inf were left out", stacklevel=2)
        _, ranks = self._level(alpha, delta)
        place = (self.counts.cumsum(-1).cpu() < ranks.unsqueeze(-1)).sum(-1)  # the place of the k-th lowest score
        number = bin_edges(self.scoring.resolution)[place]
        if self.scoring.name in scores:
            sign = -1 if self.scoring.score.startswith("-") else 1
            number = sign * scores[self.scoring.name].value(sign * number)
        score = torch.where(ranks > 0, number, -torch.inf)
        one = slice(None) if self.scoring.groups else 0
        return Threshold(score[one], ranks[one], self.samples.cpu()[one])

    def p_values_at(
        self, placing: BinnedScores, *, smoothed: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """The p-values of samples of which `place` has said where they are."""
        place, group, valid, _ = placing
        if smoothed:
            ranks = look_up_ranks(self.counts, self.counts.cumsum(-1), place, group)
            p = rank_p_values(ranks, to_wide(torch.rand(place.shape, generator=generator, device=place.device)))
        else:
            key = place if group is None else group * self.counts.shape[-1] + place
            table = self._cached("table", lambda: bin_p_values(self.counts))
            p = table.reshape(-1).index_select(0, key.reshape(-1)).reshape(place.shape)
        return p.masked_fill(~valid, torch.nan)

    def check_level(self, alpha: float) -> None:
        """Raise if samples cannot be tested at this level; warn if it is too low to flag any sample.

        It reads the number of held-out samples from the device.
        """
        check_share("alpha", alpha)
        self.check_calibrated()
        self._level(alpha, None)

    def _level(self, alpha: float, delta: float | None) -> tuple[Tensor | float, Tensor]:
        """The largest p-value that is flagged: `alpha`, or with `confidence` a number for each group; and the ranks."""
        if torch.compiler.is_compiling() and delta is None:
            return alpha, self.counts
        found: tuple[Tensor | float, Tensor] = self._cached((alpha, delta), lambda: self._new_level(alpha, delta))
        return found

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
            which = f"{few[0]}" if len(few) == 1 else f"{few.amin()} to {few.amax()}"
            where = f" in {len(few)} of {len(ranks) - first} groups" if self.scoring.groups else ""
            warnings.warn(
                f"nothing can be flagged{where} at {level}, which takes at least {needed}: "
                f"{which} held-out samples are too few",
                stacklevel=6,
            )
        upto = self.counts.cumsum(-1).cpu()
        below = torch.where(upto < ranks.unsqueeze(-1), upto, 0).amax(-1)  # held-out samples below the threshold
        if tied := int(((below + 1) * 2 < ranks).logical_and(ranks >= ENOUGH).sum()):
            where = f" in {tied} of {len(ranks)} groups" if self.scoring.groups else ""
            finer = f"more places with resolution={min(16 * self.scoring.resolution, FINEST)} may tell them apart"
            warnings.warn(
                f"far fewer than alpha={alpha} of the samples are flagged{where}, because many held-out scores are "
                f"tied at the threshold; {finer}",
                stacklevel=6,
            )
        return alpha if delta is None else ranks.to(self.counts.device) / to_wide(self.samples + 1), ranks

    def _check_rate(self, fdr: float) -> None:
        """Say if held-out samples are so few that a tenth of a batch must be found at once, or nothing is."""
        if type(self.counts) is Tensor and (share := 1 / (fdr * (int(self.samples.sum()) + 1))) > 0.1:
            enough = math.ceil(10 / fdr) - 1
            warnings.warn(
                f"at fdr={fdr} nothing is found unless {min(share, 1.0):.0%} of a batch are, because the p-values of "
                f"so few held-out samples are not small enough; take {enough} or more",
                stacklevel=5,
            )
