"""The summary of rows that are too many to be held at once: blocks are added up one by one, in any order."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from ..core.schema import COINS, Tally
from ..core.tally import empty_tally
from ..functional.per_sample import SampleStats
from ..functional.summary import summarize
from ..functional.table_columns import TARGET_COLUMN, restore_sample_stats
from ..functional.tally import add_logits, add_sample_stats
from .batch_predictor import column_tensor

Block = Mapping[str, Any]  # columns of one length by name: arrays of NumPy, tensors or lists of strings
Totals = dict[Any, Tally]


class RowSummary(NamedTuple):
    """How rows are summed up; see `torch_boc.ray.summarize`. It holds no sums, so it can be sent to workers."""

    by: str | None = None
    logits: str = "logits"
    target: str = "target"
    num_classes: int | None = None
    trials: int = 100
    bins: int = 15
    alpha: float = 0.05
    ignore_index: int | None = None

    def add(self, totals: Totals, block: Block) -> Totals:
        """Add the rows of a block to the tallies of their groups."""
        for key, rows in _groups(block, self.by).items():
            labels = column_tensor(self.target, rows[self.target]) if self.target in rows else None
            stats = stats_of(rows, self.logits, self.num_classes, labels, self.trials)
            total = totals.setdefault(key, empty_tally(self.bins))
            if isinstance(stats, Tensor):
                options: dict[str, Any] = {"trials": self.trials, "ignore_index": self.ignore_index}
                add_logits(total, stats, labels, alpha=self.alpha, **options)
            else:
                counted = None if labels is None or self.ignore_index is None else labels != self.ignore_index
                add_sample_stats(total, stats._replace(counted=counted), alpha=self.alpha)
        return totals

    def merge(self, totals: Totals, others: Totals) -> Totals:
        """Add other tallies to the first ones."""
        for key, other in others.items():
            for x, y in zip(totals.setdefault(key, empty_tally(self.bins)), other, strict=True):
                x.add_(y)
        return totals

    def result(self, totals: Totals) -> Any:
        """The summary, or those of the groups by their values."""
        if self.by is None:
            return summarize(totals.get(None, empty_tally(self.bins)))
        return {key: summarize(total) for key, total in totals.items()}

    def used(self, names: Collection[str]) -> list[str]:
        """The columns that it reads, of those that there are."""
        sources = [self.logits] if self.logits in names else [*COINS, TARGET_COLUMN]
        return [name for name in {*sources, self.target, self.by or self.target} if name in names]


def stats_of(
    block: Block, logits: str, num_classes: int | None, target: Tensor | None = None, trials: int = 100
) -> Tensor | SampleStats:
    """The logits of rows; without logits their statistics, as far as it follows from the columns of a predictor."""
    if logits in block:
        return column_tensor(logits, block[logits])
    names = (*COINS, "energy", "logit_gap", TARGET_COLUMN)
    columns = {name: column_tensor(name, block[name]) for name in names if name in block}
    if not {*COINS} <= {*columns}:
        raise ValueError(f"expected a column {logits!r}, or those of a predictor, got {', '.join(block)}")
    if num_classes is None:
        raise ValueError("expected num_classes=, because the rows have no logits, got none")
    columns |= {} if target is None else {"target": target}
    return restore_sample_stats(columns, num_classes=num_classes, trials=trials)


def _groups(block: Block, by: str | None) -> dict[Any, Block]:
    """The rows of each group, by the values of column `by`; all rows under None without such a column."""
    if by is None:
        return {None: block}
    if by not in block:
        raise ValueError(f"expected a column {by!r} to group by, got {', '.join(block)}")
    values, groups = block[by], dict[Any, list[int]]()
    for row, value in enumerate(values if isinstance(values, list) else values.tolist()):
        if value is None or value != value:
            raise ValueError(f"expected a group for each row in column {by!r}, got null or NaN; leave such rows out")
        groups.setdefault(value, []).append(row)
    used = {name: x for name, x in block.items() if name != by or not isinstance(x, list)}  # text is in no sum
    return {value: {name: x[rows] for name, x in used.items()} for value, rows in groups.items()}
