"""The summary of rows that are too many to be held at once: blocks are added up one by one, in any order."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from ..core.schema import COINS, Tally
from ..core.tally import empty_tally
from ..functional.checks import check_trials
from ..functional.per_sample import SampleStats
from ..functional.summary import summarize
from ..functional.table_columns import TARGET_COLUMN, restore_sample_stats
from ..functional.tally import add_logits, add_sample_stats
from .batch_predictor import column_tensor

Block = Mapping[str, Any]  # columns of one length by name: arrays of NumPy, tensors or lists of strings
Totals = dict[Any, Tally]


class RowSummary(NamedTuple):
    """How rows are summed up; see `torch_boc.ray.summarize`. It holds no sums, so that it can be sent to workers."""

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
        trials = check_trials(self.trials)
        for key, rows in _groups(block, self.by).items():
            labels = column_tensor(self.target, rows[self.target]) if self.target in rows else None
            found, total = stats_of(rows, self.logits, self.num_classes, labels, trials), empty_tally(self.bins)
            if isinstance(found, Tensor):
                add_logits(total, found, labels, trials=trials, alpha=self.alpha, ignore_index=self.ignore_index)
            else:
                counted = None if labels is None or self.ignore_index is None else labels != self.ignore_index
                add_sample_stats(total, found._replace(counted=counted), alpha=self.alpha)
            self.merge(totals, {key: total})
        return totals

    def merge(self, totals: Totals, others: Totals) -> Totals:
        """Add other tallies to the first ones."""
        for key, other in others.items():
            for x, y in zip(totals.setdefault(key, empty_tally(self.bins)), other, strict=True):
                x.add_(y)
        return totals

    def result(self, fold: Callable[..., Totals]) -> Any:
        """The summary, or those of the groups, from a function that folds blocks: `fold(empty, add, merge)`."""
        totals = fold(dict, self.add, self.merge)
        if self.by is None:
            return summarize(totals.get(None, empty_tally(self.bins)))
        return {key: summarize(total) for key, total in totals.items()}

    def used(self, names: Iterable[str]) -> list[str]:
        """The columns that it reads, of those that there are."""
        there = {*names}
        own = [self.logits] if self.logits in there else [*COINS, TARGET_COLUMN]
        return [name for name in dict.fromkeys([*own, self.target, self.by]) if name in there]


def stats_of(
    block: Block, logits: str, num_classes: int | None, target: Tensor | None = None, trials: int = 100
) -> Tensor | SampleStats:
    """The logits of rows; without logits their statistics, as far as it follows from the columns of a predictor."""
    if logits in block:
        return column_tensor(logits, block[logits])
    names = (*COINS, "energy", "logit_gap", TARGET_COLUMN)
    columns = {name: column_tensor(name, block[name]) for name in names if name in block}
    columns |= {} if target is None else {"target": target}
    if not {*COINS} <= {*columns}:
        raise ValueError(f"expected a column {logits!r}, or those of a predictor, got {', '.join(block)}")
    if num_classes is None:
        raise ValueError("expected num_classes=, because the rows have no logits, got none")
    return restore_sample_stats(columns, num_classes=num_classes, trials=trials)


def _groups(block: Block, by: str | None) -> dict[Any, Block]:
    """The rows of each group, by the values of column `by`; all rows under None without such a column."""
    if by is None:
        return {None: block}
    if by not in block:
        raise ValueError(f"expected a column {by!r} to group by, got {', '.join(block)}")
    keys, places = block[by], dict[Any, list[int]]()
    for place, key in enumerate(keys if isinstance(keys, list) else keys.tolist()):
        if key is None or key != key:
            raise ValueError(
                f"expected a group for each row in column {by!r}, got null or NaN; leave such rows out of the dataset "
                "with filter, or give them a value of their own"
            )
        places.setdefault(key, []).append(place)
    return {key: {name: x[rows] for name, x in block.items() if name != by} for key, rows in places.items()}
