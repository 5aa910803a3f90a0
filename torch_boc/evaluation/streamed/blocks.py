"""Rows of logits, or of the columns that are kept of them, from the rows of Arrow tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...data.columns import number_column
from ...data.families import find_families
from ...data.files import check_number
from ...data.formats import ContentError
from ...data.probabilities import Promised, Shares, take_logarithms
from ...data.selection import as_target, choose
from ...data.sets import class_indices, floating
from ...data.sheets import ParquetPlan
from ...functional.evidence import Evidence, gather, is_class
from ...functional.restored import NEEDED, USED, restore_evidence
from .state import Block

# The logits that are probed at once. More than this take longer for each row, because they do not stay in the cache.
BLOCK_ELEMENTS = 2**20
LARGEST_BLOCK = 2**16
# Fewer rows could look like probabilities by chance.
ENOUGH_ROWS = 16


@dataclass(frozen=True)
class Reader:
    """Turns the rows of Arrow tables into blocks. It can be pickled.

    Attributes:
        trials: the number of coin flips.
        classes: the names of the classes, or None.
        from_probabilities: whether the tables hold probabilities.
        num_classes: the number of classes of tables of columns, if it is known.
    """

    trials: int = 100
    classes: tuple[str, ...] | None = None
    from_probabilities: bool = False
    num_classes: int | None = None

    def columns(self, schema: Any) -> list[str]:
        """The columns of a table that are read."""
        if has_columns(schema):
            return [name for name in USED if name in schema.names]
        return _plan(schema, self.classes).wanted

    def after(self, evidence: Evidence) -> "Reader":
        """The reader for later rows of the same set, which have as many classes."""
        return replace(self, num_classes=evidence.num_classes)

    def blocks(self, table: Any, first: int) -> Iterator[Block]:
        """The rows of a table in blocks; the first row has the number `first`.

        Raises:
            ContentError: if rows cannot be logits, or columns of them.
        """
        take = self._from_columns if has_columns(table.schema) else self._from_logits
        for start, evidence, logits in take(table):
            _check(evidence, first + start)
            rows = torch.arange(first + start, first + start + len(evidence.coins.odds))
            yield Block(evidence, logits, rows)

    def _from_columns(self, table: Any) -> Iterator[tuple[int, Evidence, None]]:
        if self.from_probabilities:
            raise ContentError("expected probabilities, got the columns of a predictor; leave out from_probabilities")
        for start, part in _parts(table, LARGEST_BLOCK):
            columns = {name: number_column(part[name], name) for name in USED if name in part.column_names}
            if "target" in columns:
                columns["target"] = _target(columns["target"])
            try:
                yield start, restore_evidence(columns, num_classes=self.num_classes, trials=self.trials), None
            except ValueError as error:
                raise ContentError(str(error)) from None

    def _from_logits(self, table: Any) -> Iterator[tuple[int, Evidence, Tensor]]:
        content = _plan(table.schema, self.classes).content(table)
        choice = choose(content, from_probabilities=self.from_probabilities)
        logits = floating(content[choice.logits])
        check_number(self.classes, logits.shape[1])
        target = (
            None if choice.target is None else _target(as_target(content[choice.target], choice.target, self.classes))
        )
        if len(logits) >= ENOUGH_ROWS:
            self._look(logits)
        size = max(1, min(LARGEST_BLOCK, BLOCK_ELEMENTS // logits.shape[1]))
        for start in range(0, len(logits), size):
            rows = logits[start : start + size]
            rows = take_logarithms(rows) if self.from_probabilities else rows
            labels = None if target is None else target[start : start + size]
            yield start, gather(rows, labels, trials=self.trials, extras=True), rows

    def _look(self, logits: Tensor) -> None:
        """Raise if these are probabilities that should be logits, or the other way round."""
        looked: Promised | Shares = Promised() if self.from_probabilities else Shares()
        looked.add(logits)
        try:
            looked.finish() if isinstance(looked, Promised) else looked.refuse()
        except ValueError as error:
            raise ContentError(str(error)) from None


def has_columns(schema: Any) -> bool:
    """Whether a table has the columns that a predictor writes, and no logits."""
    return all(name in schema.names for name in NEEDED) and _logit_families(schema) is None


def _plan(schema: Any, classes: Sequence[str] | None) -> ParquetPlan:
    try:
        return ParquetPlan(schema, classes)
    except ContentError as error:
        raise ContentError(f"{error}; or the columns of a predictor: {', '.join(NEEDED)} and others") from None


def _logit_families(schema: Any) -> dict[str, list[str]] | None:
    try:
        return find_families(schema.names)
    except ContentError:
        return None


def _parts(table: Any, rows: int) -> Iterator[tuple[int, Any]]:
    return ((start, table.slice(start, rows)) for start in range(0, table.num_rows, rows))


def _target(values: Any) -> Tensor:
    if not isinstance(values, Tensor):
        raise ContentError("expected targets as numbers of classes, got something else")
    found = class_indices(values)
    if found.dtype != torch.int64:
        raise ContentError(f"expected targets as whole numbers, got {values.dtype}")
    return found


def _check(evidence: Evidence, first: int) -> None:
    """Raise if a row has no finite coins, or a target that is no class."""
    bad = ~(evidence.coins.odds + evidence.coins.loss).isfinite()
    if bool(bad.any()):
        raise ContentError(
            f"expected rows of finite numbers, got NaN or infinity in {int(bad.sum())} rows, first in row "
            f"{first + int(bad.nonzero()[0])}; leave these rows out"
        )
    if evidence.target is not None:
        outside = ~is_class(evidence.target, evidence.num_classes)
        if bool(outside.any()):
            row = int(outside.nonzero()[0])
            raise ContentError(
                f"expected targets in [0, {evidence.num_classes}), got {int(evidence.target[row])} in row {first + row}"
            )
