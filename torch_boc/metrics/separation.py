"""In-distribution against out-of-distribution samples, as a torchmetrics metric."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import plots
from ..functional.checks import check_trials
from ..functional.registry import compute_scores, scores
from ..functional.separation import auroc, binned_auroc, binned_fpr_at_tpr, fpr_at_tpr, score_bin
from ..functional.tally import count, empty_tally
from .base import ProbeMetric

DEFAULT_SCORES = ("msp", "energy", "logit_gap", "dominance", "gap", "concentration")


class Scored(NamedTuple):
    """The scores of a batch, of shape (scores, N) or (scores, N, ...)."""

    values: Tensor


class BoCSeparation(ProbeMetric):
    """How well scores of the logits separate in-distribution samples, the positive class, from the others.

    `update` takes logits of shape (N, C) or (N, C, ...) and whether they are out-of-distribution: a boolean a sample,
    or one for the whole batch. `compute` gives `{score}_auroc` and `{score}_fpr95` (the share of out-of-distribution
    samples that pass the threshold which 95 % of the in-distribution pass) for each score. Scores are ranked as they
    are, higher = more in-distribution; the paper's `structural_score` therefore has an AUROC below 0.5.

    Args:
        scores: names in `torch_boc.functional.scores`.
        thresholds: None keeps one float for each sample and score, and is exact. An even number keeps histograms of
            that many bins, logarithmic in the distance from where a score saturates; then `{score}_auroc_error` and
            `{score}_fpr95_error` say by how much the result can be off.
        trials: the number of coin flips, for the scores that are p-values.
        num_classes: checked against the logits if given.
        nan_strategy: what `compute` does about rows with NaN or +inf, which never count: "warn", "error" or "ignore".
        validate_args: whether to refuse probabilities.
        kwargs: for `torchmetrics.Metric`.

    >>> metric = BoCSeparation(scores=("msp", "gap"))
    >>> metric.update(torch.tensor([[9.0, 0.0, 0.0], [5.0, 0.0, 1.0]]), False)
    >>> metric.update(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), ood=torch.tensor([True, True]))
    >>> {name: value.item() for name, value in metric.compute().items()}
    {'msp_auroc': 1.0, 'msp_fpr95': 0.0, 'gap_auroc': 1.0, 'gap_fpr95': 0.0}
    """

    def __init__(
        self,
        scores: Sequence[str] = DEFAULT_SCORES,
        thresholds: int | None = None,
        *,
        trials: int = 100,
        num_classes: int | None = None,
        nan_strategy: str = "warn",
        validate_args: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, nan_strategy=nan_strategy, validate_args=validate_args, **kwargs)
        self.scores, self.thresholds, self.trials = _known(scores), _even(thresholds), check_trials(trials)
        suffix = "_".join([*self.scores, str(trials), str(thresholds)])
        self._table, self._invalid = f"boc_table_{suffix}", f"boc_invalid_{suffix}"
        if self.thresholds is None:  # rows of scores, with 1 for out-of-distribution in the last column
            self.add_state(self._table, [], dist_reduce_fx="cat")
        else:
            histograms = torch.zeros(2, len(self.scores), self.thresholds, dtype=torch.int64)
            self.add_state(self._table, histograms, dist_reduce_fx="sum")
            self.add_state(self._invalid, torch.tensor(0), dist_reduce_fx="sum")

    def take(self, preds: Tensor) -> Scored:
        """What `update` needs of a batch of logits: its scores, to be added then or later."""
        self._check(preds)
        return Scored(torch.stack([*compute_scores(preds.detach(), self.scores, dim=1, trials=self.trials).values()]))

    def update(self, preds: Tensor | Scored, ood: Tensor | bool) -> None:
        """Add a batch: logits of shape (N, C) or (N, C, ...), and which samples are out-of-distribution.

        In place of the logits, what `take` took from them.
        """
        scored = preds if isinstance(preds, Scored) else self.take(preds)
        flags = _flags(ood, scored.values.shape[1:], scored.values.device)
        values = scored.values.flatten(1)
        if self.thresholds is None:
            getattr(self, self._table).append(torch.cat([values, flags.to(values.dtype).unsqueeze(0)]).T.contiguous())
            return
        finite = ~values.isnan().any(0)
        ceilings = [scores[name].ceiling for name in self.scores]
        places = [score_bin(column, self.thresholds, top) for column, top in zip(values, ceilings, strict=True)]
        # The bins of the out-of-distribution samples follow those of the others.
        both = torch.stack(places) + flags * self.thresholds
        batch = count(both, finite.expand_as(both), 2 * self.thresholds).unflatten(1, (2, -1)).movedim(1, 0)
        setattr(self, self._table, getattr(self, self._table) + batch)
        setattr(self, self._invalid, getattr(self, self._invalid) + (~finite).sum())

    def compute(self) -> dict[str, Tensor]:
        """AUROC and FPR at 95 % TPR of each score; NaN while either kind of sample is missing."""
        if self.thresholds is None:
            return self._compute_exact()
        self._report(getattr(self, self._invalid))
        result = {}
        for name, known, unknown in zip(self.scores, *self.histograms(), strict=True):
            result[f"{name}_auroc"], result[f"{name}_auroc_error"] = binned_auroc(known, unknown)
            result[f"{name}_fpr95"], result[f"{name}_fpr95_error"] = binned_fpr_at_tpr(known, unknown)
        return result

    def samples(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The scores of the in-distribution and of the out-of-distribution samples so far, in exact mode."""
        if self.thresholds is not None:
            raise ValueError(f"expected thresholds=None for single scores, got {self.thresholds}")
        parts = getattr(self, self._table)
        table = torch.cat(parts) if isinstance(parts, list) and parts else parts
        table = table if isinstance(table, Tensor) else self._no_rows()
        finite = ~table.isnan().any(-1)
        self._report((~finite).sum())
        sides = (table[finite & (table[:, -1] == side)] for side in (0, 1))
        known, unknown = (dict(zip(self.scores, side.unbind(-1), strict=False)) for side in sides)
        return known, unknown

    def histograms(self) -> Tensor:
        """Counts of shape (2, scores, bins), in-distribution first, in binned mode."""
        counts: Tensor = getattr(self, self._table)
        return counts

    def _no_rows(self) -> Tensor:
        return empty_tally().sums.new_zeros(0, len(self.scores) + 1).to(self.device)

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        """A process without data takes part with no rows of the right shape and dtype."""
        if self.thresholds is None and not getattr(self, self._table):
            getattr(self, self._table).append(self._no_rows())
        super()._sync_dist(*args, **kwargs)

    def _compute_exact(self) -> dict[str, Tensor]:
        known, unknown = self.samples()
        result = {}
        for name in self.scores:
            result[f"{name}_auroc"] = auroc(known[name], unknown[name])
            result[f"{name}_fpr95"] = fpr_at_tpr(known[name], unknown[name])
        return result

    def plot(self, val: Any = None, ax: Any = None, score: str | None = None) -> tuple[Any, Any]:
        """Draw the histograms of one score (the gap if it is there, else the first) and the ROC curves of all.

        Args:
            val: results of `compute`, whose AUROC is then drawn step by step.
            ax: two matplotlib axes to draw in.
            score: which score to draw histograms of.

        Returns:
            The figure and the axes.
        """
        if val is not None:
            return plots.draw_course([val] if isinstance(val, dict) else val, ax, [f"{n}_auroc" for n in self.scores])
        chosen = score or ("gap" if "gap" in self.scores else self.scores[0])
        if chosen not in self.scores:
            raise ValueError(f"expected score among {', '.join(self.scores)}, got {chosen!r}")
        return plots.draw_separation(self, chosen, ax)


def _known(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not names or not set(names) <= set(scores):
        raise ValueError(f"expected scores as names among {', '.join(scores)}, got {names!r}")
    return tuple(names)


def _even(thresholds: int | None) -> int | None:
    if thresholds is not None and (thresholds < 2 or thresholds % 2):
        raise ValueError(f"expected thresholds as None or an even number of bins, got {thresholds}")
    return thresholds


def _flags(ood: Tensor | bool, shape: torch.Size, device: torch.device) -> Tensor:
    """One flag for each row of logits, flat."""
    if isinstance(ood, bool):
        return torch.full((shape.numel(),), ood, device=device)
    if not isinstance(ood, Tensor) or ood.dtype != torch.bool:
        kind = f"dtype {ood.dtype}" if isinstance(ood, Tensor) else type(ood).__name__
        raise TypeError(f"expected ood as a bool or a tensor of booleans, got {kind}; convert with ood.bool()")
    if ood.ndim and ood.shape != shape:
        raise ValueError(f"expected ood as one boolean or of shape {tuple(shape)}, got shape {tuple(ood.shape)}")
    return ood.to(device).expand(shape).reshape(-1)
