"""What Trainer gathers instead of logits: seven numbers for each row, and the metric that takes these numbers."""

import torch
from torch import Tensor

from ..core.coins import Coins
from ..core.precision import widen
from ..functional.evidence import Evidence
from ..metrics import BoCMetric

COLUMNS = ("prediction", "odds", "loss", "concentration", "free_gap", "target", "distance")
"""The numbers of each sample, in this order; without labels the first five."""
# Trainer pads with this value. Odds are never negative, so that it also marks samples that are ignored.
PADDING = -100
# How many samples are counted at once. The tokens of a whole evaluation may be too many.
BLOCK_SAMPLES = 2**20


def to_columns(evidence: Evidence) -> Tensor:
    """Samples as numbers on a last axis, in the order of `COLUMNS`."""
    coins, counted = evidence.coins, evidence.counted
    odds = coins.odds if counted is None else torch.where(counted, coins.odds, PADDING)
    columns = [coins.prediction, odds, coins.loss, coins.concentration, coins.free_gap]
    if evidence.target is not None and evidence.distance is not None:
        columns += [evidence.target, evidence.distance]
    return torch.stack([widen(column) for column in columns], -1)


def from_columns(columns: Tensor, num_classes: int) -> Evidence:
    """The evidence that `to_columns` was given. Rows that Trainer padded do not count."""
    prediction, odds, loss, concentration, free_gap, *labels = columns.unbind(-1)
    coins = Coins(prediction.long(), odds, loss, concentration, free_gap)
    counted = ~(odds < 0)  # a row without geometry has NaN for odds, and counts as invalid
    evidence = Evidence(coins, num_classes, counted=counted)
    return evidence._replace(target=labels[0].long(), distance=labels[1]) if labels else evidence


class ColumnMetric(BoCMetric):
    """A `BoCMetric` that takes columns instead of logits. Every process has all columns, so it is never synced."""

    def update(self, preds: Tensor, target: Tensor | None = None) -> None:  # type: ignore[override]
        if self.num_classes is None:
            raise ValueError("expected predictions that this BoCTrainerMetrics made, got those of another")
        if self.device != preds.device:
            self.to(preds.device)
        for block in preds.flatten(0, -2).split(BLOCK_SAMPLES):
            super().update(from_columns(widen(block), self.num_classes))

    def reset(self) -> None:
        """Forget all samples, but not the classes: `preprocess` has seen the logits before the first update."""
        classes = self.num_classes
        super().reset()
        self.num_classes = classes
