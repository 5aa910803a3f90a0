"""How well scores separate in-distribution from out-of-distribution samples, as a torchmetrics metric."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import plots
from ..core.tally import empty_tally
from ..functional import registry
from ..functional.checks import check_names, check_trials
from ..functional.per_sample import SampleStats, sample_stats
from ..functional.registry import ranking_numbers, required_extras
from ..functional.separation import (
    aupr,
    auroc,
    binned_aupr,
    binned_auroc,
    binned_fpr_at_tpr,
    count_scores,
    fpr_at_tpr,
)
from .base import ProbeMetric, state_suffix

DEFAULT_SCORES = ("msp", "energy", "logit_gap", "dominance", "gap", "concentration")
# The number of bins for scores that are not kept one by one. They take 4 MB per score.
MANY_BINS = 2**18
# No warning for an error up to this: results are usually printed with three digits.
NEGLIGIBLE_ERROR = 0.001


class BoCSeparation(ProbeMetric):
    """How well scores of the logits separate in-distribution samples (the positive class) from the others.

    `update` takes logits of shape (N, C), or with more axes, and whether they are out-of-distribution: one boolean for
    each sample, or one for the whole batch. For each score, `compute` returns `{score}_auroc`; `{score}_aupr_in` and
    `{score}_aupr_out`, the area under the precision-recall curve with in-distribution or out-of-distribution samples as
    the positive class; and the FPR at 95 % TPR in both conventions: `{score}_fpr95` is the share of out-of-distribution
    samples that pass when 95 % of the in-distribution samples do, `{score}_fpr95_out`, the FPR95 of pytorch-ood, the
    share of in-distribution samples that are flagged when 95 % of the out-of-distribution samples are. Higher scores
    mean more in-distribution. The paper's `structural_score` is the opposite where the network is confident. Samples
    whose scores round to 1 are still ranked, for example by their odds.

    The results are exact up to a million samples. With more samples, all are counted in bins, in memory of fixed size.
    Then `{score}_auroc_error` and so on give the largest possible error: areas can be too high or too low by this much,
    FPRs only too high. `compute` warns if an error is above 0.001.

    Args:
        scores: names in `torch_boc.functional.scores`.
        exact_up_to: how many samples all processes together keep the scores of, with 8 bytes for each score of each
            sample; None keeps all.
        prefix: the start of every key.
        trials: the number of coin flips, for the scores that are p-values.
        num_classes: the number of classes, checked against the logits. By default that of the first batch.
        dim: the class axis; 1 for segmentation, -1 for tokens. By default the second of (N, C); with more axes, that
            which the shape of `ood` implies.
        binary: take the single logit z of a binary classifier, of shape (N,) or (N, 1), for the two classes (0, z).
        nan_strategy: what `compute` does about rows with NaN or +inf, which never count: "warn", "error" or "ignore".
        validate_args: whether to refuse probabilities.
        kwargs: passed on to `torchmetrics.Metric`.

    >>> metric = BoCSeparation(scores=("msp", "gap"))
    >>> metric.update(torch.tensor([[9.0, 0.0, 0.0], [5.0, 0.0, 1.0]]), False)
    >>> metric.update(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), ood=torch.tensor([True, True]))
    >>> {name: value.item() for name, value in metric.compute().items()}
    {'msp_auroc': 1.0, 'msp_aupr_in': 1.0, 'msp_aupr_out': 1.0, 'msp_fpr95': 0.0, 'msp_fpr95_out': 0.0,
     'gap_auroc': 1.0, 'gap_aupr_in': 1.0, 'gap_aupr_out': 1.0, 'gap_fpr95': 0.0, 'gap_fpr95_out': 0.0}
    """

    def __init__(
        self,
        scores: Sequence[str] = DEFAULT_SCORES,
        *,
        exact_up_to: int | None = 1_000_000,
        prefix: str = "",
        trials: int = 100,
        num_classes: int | None = None,
        dim: int | None = None,
        binary: bool = False,
        nan_strategy: str = "warn",
        validate_args: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs |= {"nan_strategy": nan_strategy, "validate_args": validate_args}
        super().__init__(num_classes, dim=dim, binary=binary, **kwargs)
        self.scores = check_names("scores", scores, registry.scores)
        self.key_prefix, self.trials = prefix or "", check_trials(trials)
        if exact_up_to is not None and exact_up_to < 0:
            raise ValueError(f"expected exact_up_to as None or a number of samples, got {exact_up_to}")
        self.exact_up_to = exact_up_to
        suffix = "_".join([*self.scores, state_suffix(trials=trials, exact=exact_up_to, dim=dim, binary=binary)])
        # Rows of scores, whose last column is 1 for out-of-distribution and 0 for in-distribution, and histograms of
        # earlier rows. Both are lists, because some processes can have rows where others have histograms.
        self._rows, self._bins, self._invalid = (f"boc_{name}_{suffix}" for name in ("rows", "bins", "invalid"))
        self.add_state(self._invalid, torch.tensor(0), dist_reduce_fx="sum")
        self.add_state(self._rows, [], dist_reduce_fx="cat")
        self.add_state(self._bins, [], dist_reduce_fx="cat")

    def update(self, preds: Tensor | SampleStats, ood: Tensor | bool) -> None:
        """Add a batch: logits of shape (N, C), or with more axes, and which samples are out-of-distribution.

        The shape of `ood` implies the class axis. Instead of logits, `preds` can be their statistics; samples that are
        not `counted` there do not count here.
        """
        if isinstance(preds, SampleStats):
            self._agree_on_classes(preds.num_classes)
            stats = preds._replace(trials=self.trials)
        else:
            logits, _ = self._normalize_input(preds, ood if isinstance(ood, Tensor) and ood.ndim else None)
            stats = sample_stats(logits.detach(), trials=self.trials, extras=required_extras(self.scores))
        flags = _flat_flags(ood, stats.coins.odds.shape, self.device)
        values = torch.stack([*ranking_numbers(stats, self.scores).values()]).flatten(1)
        counted = None if stats.counted is None else stats.counted.reshape(-1)
        bad = values.isnan().any(0)
        if counted is not None:
            bad, values = bad & counted, values.masked_fill(~counted, torch.nan)
        self._states([self._invalid])[0].add_(bad.sum())
        self._keep(torch.cat([values.T, flags.to(values.dtype).unsqueeze(1)], 1))

    def reset(self) -> None:
        """Forget all samples, but leave the lists to a `torchmetrics.wrappers.Running` that holds them."""
        setattr(self, self._rows, [])
        setattr(self, self._bins, [])
        super().reset()

    @torch.jit.unused
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch, and return the result of only this batch."""
        result = super().forward(*args, **kwargs)
        self._bin_what_is_too_much()  # the `update` inside of `forward` had only the rows of this batch
        return result

    def compute(self) -> dict[str, Tensor]:
        """AUROC, AUPR and FPR at 95 % TPR of each score; NaN if there are no samples of one kind."""
        functions = (auroc, fpr_at_tpr, aupr) if self.exact else (binned_auroc, binned_fpr_at_tpr, binned_aupr)
        area, fpr, precision = functions
        result: dict[str, Tensor] = {}
        sides = [[*x.values()] for x in self.ranked_samples()] if self.exact else self.histograms()
        for name, inner, outer in zip(self.scores, *sides, strict=True):
            pair, other = (inner, outer), (-outer, -inner) if self.exact else (outer.flip(0), inner.flip(0))
            values: dict[str, Any] = {"auroc": area(*pair), "aupr_in": precision(*pair), "aupr_out": precision(*other)}
            for key, value in (values | {"fpr95": fpr(*pair), "fpr95_out": fpr(*other)}).items():
                with_error = (value,) if isinstance(value, Tensor) else value
                result |= dict(zip((f"{name}_{key}", f"{name}_{key}_error"), with_error, strict=False))
        if not self.exact:
            self._report(getattr(self, self._invalid))
            errors = {key: float(value.nan_to_num()) for key, value in result.items() if key.endswith("_error")}
            worst = max(errors, key=errors.__getitem__)
            if errors[worst] > NEGLIGIBLE_ERROR:
                warnings.warn(
                    f"{worst} is {errors[worst]:.2g}: beyond {self.exact_up_to:,} samples the scores are counted in "
                    "bins; exact_up_to=None keeps all scores",
                    stacklevel=2,
                )
        return {f"{self.key_prefix}{key}": value for key, value in result.items()}

    def ranked_samples(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What ranks the in-distribution and the out-of-distribution samples so far; raises if they are not kept.

        These are the numbers of `torch_boc.functional.registry.unsaturated_scores`, by score.
        """
        if not self.exact:
            raise ValueError(
                f"expected a metric that keeps its samples, got one that keeps at most {self.exact_up_to:,} and counts "
                "the others in bins; use exact_up_to=None"
            )
        self._report(getattr(self, self._invalid))
        rows = self._stored_rows()
        rows = rows[~rows.isnan().any(-1)]
        sides = (rows[rows[:, -1] == side] for side in (0, 1))
        in_distribution, ood = (dict(zip(self.scores, side.unbind(-1), strict=False)) for side in sides)
        return in_distribution, ood

    @torch.jit.unused  # type: ignore[prop-decorator]
    @property
    def exact(self) -> bool:
        """Whether the scores of all samples so far are kept."""
        return not len(getattr(self, self._bins))

    def histograms(self) -> Tensor:
        """A copy of the counts of all samples so far, of shape (2, scores, bins), in-distribution first."""
        columns = self._stored_rows().T
        total = torch.zeros(2, len(self.scores), MANY_BINS, dtype=torch.int64, device=columns.device)
        count_scores(total, total.new_zeros(()), columns[:-1], columns[-1] == 1)
        parts = getattr(self, self._bins)
        for part in [parts] if isinstance(parts, Tensor) else parts:  # after a sync of processes it is one tensor
            total = total + part.sum(0).to(total.device)
        return total

    def plot(self, val: Any = None, ax: Any = None, score: str | None = None) -> tuple[Any, Any]:
        """Draw the histograms of one score and the ROC curves of all scores.

        Args:
            val: results of `compute`. Then their AUROC is drawn step by step.
            ax: two matplotlib axes to draw in.
            score: the score of the histograms; by default the gap, or the first score if there is no gap.

        Returns:
            The figure and the axes.
        """
        if val is not None:
            keys = [f"{self.key_prefix}{name}_auroc" for name in self.scores]
            return plots.draw_course([val] if isinstance(val, dict) else val, ax, keys)
        chosen = score or ("gap" if "gap" in self.scores else self.scores[0])
        if chosen not in self.scores:
            raise ValueError(f"expected score among {', '.join(self.scores)}, got {chosen!r}")
        return plots.draw_separation(self, chosen, ax)

    def _keep(self, rows: Tensor) -> None:
        """Add rows to a list of parts. Parts are joined until each is larger than the next, so the list stays short."""
        parts = getattr(self, self._rows)
        while parts and len(parts[-1]) <= len(rows) and parts[-1].device == rows.device:
            rows = torch.cat([parts.pop(), rows])
        parts.append(rows)
        self._bin_what_is_too_much()

    def _stored_rows(self) -> Tensor:
        parts = getattr(self, self._rows)
        if isinstance(parts, Tensor):  # after a sync of processes
            return parts
        # With `compute_on_cpu`, only the last part can still be on the device.
        return torch.cat([part.to(parts[-1].device) for part in parts]) if parts else self._no_rows()

    def _bin_what_is_too_much(self) -> None:
        """Turn the stored rows into histograms if this process has more rows than it may keep."""
        if self.exact_up_to is None:
            return
        together = torch.distributed.get_world_size(self.process_group) if self.distributed_available_fn() else 1
        if sum(map(len, getattr(self, self._rows))) > self.exact_up_to // together:
            setattr(self, self._bins, [self.histograms().unsqueeze(0)])
            setattr(self, self._rows, [])

    def _no_rows(self) -> Tensor:
        return empty_tally(device=self.device).sums.new_zeros(0, len(self.scores) + 1)

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        """Give a process without rows or histograms empty ones of the right shape and dtype, for the sync."""
        if not getattr(self, self._rows):
            setattr(self, self._rows, [self._no_rows()])
        if not getattr(self, self._bins):
            shape = (0, 2, len(self.scores), MANY_BINS)
            setattr(self, self._bins, [torch.zeros(shape, dtype=torch.int64, device=self.device)])
        super()._sync_dist(*args, **kwargs)


def _flat_flags(ood: Tensor | bool, shape: torch.Size, device: torch.device) -> Tensor:
    """One flag for each row of logits, as a tensor with one axis."""
    if isinstance(ood, bool):
        return torch.full((shape.numel(),), ood, device=device)
    if not isinstance(ood, Tensor) or ood.dtype != torch.bool:
        kind = f"dtype {ood.dtype}" if isinstance(ood, Tensor) else type(ood).__name__
        raise TypeError(f"expected ood as a bool or a tensor of booleans, got {kind}; convert with ood.bool()")
    if ood.ndim and ood.shape != shape:
        raise ValueError(f"expected ood as one boolean or of shape {tuple(shape)}, got shape {tuple(ood.shape)}")
    return ood.to(device).expand(shape).reshape(-1)
