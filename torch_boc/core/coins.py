"""The probe's result, and how it follows from the sums of each row."""

from typing import NamedTuple

import torch
from torch import Tensor

from .bounds import concentration_and_free_gap
from .display import decimals, note, shown_or_none, table
from .rows import Rows
from .spread import is_flat

# So many rows are shown in a notebook.
SHOWN = 8


class Coins(NamedTuple):
    """The probe's result for each row of logits, without the class axis.

    Attributes:
        prediction: the top class, int64.
        odds: the odds against it, R = (1 - confidence) / confidence.
        loss: the chance that it loses one coin flip, 1 - dominance.
        concentration: where the dominance lies between the bounds that the confidence forces, in [0, 1].
        free_gap: the part of the gap that the geometry of the logits adds to what the confidence forces.
    """

    prediction: Tensor
    odds: Tensor
    loss: Tensor
    concentration: Tensor
    free_gap: Tensor

    @property
    def confidence(self) -> Tensor:
        """The largest softmax probability, 1 / (1 + odds)."""
        return (1.0 + self.odds).reciprocal()

    @property
    def dominance(self) -> Tensor:
        """The mean chance that the top class beats a rival, 1 - loss; the paper's c_BoC."""
        return 1.0 - self.loss

    @property
    def gap(self) -> Tensor:
        """The coherence gap, dominance - confidence, without cancellation; never negative, and 0 for two classes."""
        return gap_of(self.odds, self.loss)

    @property
    def forced_gap(self) -> Tensor:
        """The part of the gap that the confidence alone forces, gap - free_gap: the gap of evenly matched rivals."""
        return gap_of(self.odds, self.loss) - self.free_gap

    @shown_or_none
    def _repr_html_(self) -> str | None:
        """The first rows, and the means of all, for a notebook. It reads from the device.

        None for subclasses of tensors, which may be spread over several processes: reading one would make them wait.
        """
        if any(type(x) is not Tensor for x in self):
            return None
        columns = [x.detach().reshape(-1) for x in (self.confidence, self.dominance, self.gap, self.concentration)]
        total = self.prediction.numel()
        first = zip(self.prediction.reshape(-1)[:SHOWN].tolist(), *(x[:SHOWN].tolist() for x in columns), strict=True)
        rows = [[str(i), str(top), *map(decimals, numbers)] for i, (top, *numbers) in enumerate(first)]
        if total > SHOWN:
            rows.append([f"… {total - SHOWN:,} more", *[""] * 5])
            rows.append(_means(columns))
        shape = tuple(self.prediction.shape)
        caption = f"Coins of {total:,} {'row' if total == 1 else 'rows'}, shape {shape}, on {self.odds.device}"
        titles = ["row", "prediction", "confidence p̂", "dominance q̄", "gap Δ", "concentration ρ"]
        return note(table(caption, titles, rows))


def _means(columns: list[Tensor]) -> list[str]:
    """The last row of the table: means over the rows without NaN."""
    wide = torch.stack([x.cpu().double() for x in columns])  # first to the CPU: Apple's devices have no float64
    valid = wide[:, ~wide.isnan().any(0)]
    total, kept = wide.shape[1], valid.shape[1]
    left_out = f", {total - kept:,} with NaN left out" if kept < total else ""
    return [f"mean of {kept:,}{left_out}", "", *map(decimals, valid.mean(1).tolist())]


def gap_of(odds: Tensor, loss: Tensor) -> Tensor:
    """The coherence gap R / (1 + R) - loss; see `Coins.gap`."""
    return odds / (1.0 + odds) - loss


def coins_by_formula(rows: Rows, num_classes: int) -> Coins:
    """Coins from the sums of each row, by torch's operations."""
    odds = rows.odds
    if num_classes == 2:  # one rival: its loss is 1 - confidence to the last bit, so that the gap is 0
        nothing = odds * 0.0
        return Coins(rows.prediction, odds, odds / (1.0 + odds), nothing, nothing)
    assert rows.mass is not None
    assert rows.mass_squares is not None
    loss = (odds - rows.squares.to(odds.dtype)) / (num_classes - 1.0)
    flat = is_flat(odds, num_classes)
    placed = concentration_and_free_gap(rows.mass, rows.mass_squares, flat, num_classes)
    return Coins(rows.prediction, odds, loss, *(x.to(odds.dtype) for x in placed))
