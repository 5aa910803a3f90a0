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
from ...data.probabilities import Promised, take_logarithms
from ...data.selection import as_target, choose
from ...data.sets import class_indices, floating
from ...data.sheets import ParquetPlan
from ...functional.evidence import Evidence, gather, is_class
from ...functional.restored import NEEDED, USED, restore_evidence
from .state import Block

# The logits that are probed at once. More than this take longer for each row, because they do not stay in the cache.
BLOCK_ELEMENTS = 2**20
LARGEST_BLOCK = 2**16
# Each block costs some time, however few rows it has.
LEAST_BLOCK = 256


@dataclass(frozen=True)
class Reader:
    """Turns the rows of Arrow tables into blocks. It can be pickled.

    Attributes:
        trials: the number of coin flips.
        classes: the names of the classes, or None.
        from_probabilities: whether the tables hold probabilities.
        num_classes: the number of classes of tables of columns, if it is known.
        targets: whether targets are read. Those of out-of-distribution sets may be classes of another data set.
    """

    trials: int = 100
    classes: tuple[str, ...] | None = None
    from_probabilities: bool = False
    num_classes: int | None = None
    targets: bool = True

    def columns(self, schema: Any) -> list[str]:
        """The columns of a table that are read."""
        if has_columns(schema):
            return [name for name in USED if name in schema.names]
        return _plan(schema, self.classes).wanted

    def after(self, evidence: Evidence) -> "Reader":
        """The reader for later rows of the same set, which have as many classes."""
        return replace(self, num_classes=evidence.num_classes)

    def blocks(self, table: Any, first: int, shown: int = 0) -> Iterator[Block]:
        """The rows of a table in blocks.

        Args:
            table: an Arrow table.
            first: the number of the first row, which decides where chance puts it.
            shown: the number of the first row in messages.

        Raises:
            ContentError: if rows cannot be logits, or columns of them.
        """
        take = self._from_columns if has_columns(table.schema) else self._from_logits
        for start, evidence, logits in take(table):
            _check(evidence, shown + start)
            rows = torch.arange(first + start, first + start + len(evidence.coins.odds))
            yield Block(evidence, logits, rows)

    def _from_columns(self, table: Any) -> Iterator[tuple[int, Evidence, None]]:
        if self.from_probabilities:
            raise ContentError("expected probabilities, got the columns of a predictor; leave out from_probabilities")
        wanted, classes = [name for name in USED if self.targets or name != "target"], self.num_classes
        for start, part in _parts(table, LARGEST_BLOCK):
            columns = {name: number_column(part[name], name) for name in wanted if name in part.column_names}
            if "target" in columns:
                columns["target"] = _target(columns["target"])
            try:
                evidence = restore_evidence(columns, num_classes=classes, trials=self.trials)
            except ValueError as error:
                raise ContentError(str(error)) from None
            classes = evidence.num_classes
            yield start, evidence, None

    def _from_logits(self, table: Any) -> Iterator[tuple[int, Evidence, Tensor]]:
        content = _plan(table.schema, self.classes).content(table)
        choice = choose(content, from_probabilities=self.from_probabilities)
        logits = floating(content[choice.logits])
        check_number(self.classes, logits.shape[1])
        named = choice.target if self.targets else None
        target = None if named is None else _target(as_target(content[named], named, self.classes))
        if self.from_probabilities:
            self._look(logits)
        size = max(LEAST_BLOCK, min(LARGEST_BLOCK, BLOCK_ELEMENTS // logits.shape[1]))
        for start in range(0, len(logits), size):
            rows = logits[start : start + size]
            rows = take_logarithms(rows) if self.from_probabilities else rows
            labels = None if target is None else target[start : start + size]
            yield start, gather(rows, labels, trials=self.trials, extras=True), rows

    def _look(self, logits: Tensor) -> None:
        """Raise if these are not the probabilities that they should be."""
        looked = Promised()
        looked.add(logits)
        try:
            looked.finish()
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
    coins = evidence.coins
    bad = ~(coins.odds + coins.loss).isfinite() | (coins.concentration + coins.free_gap).isnan()
    for number in (evidence.top, evidence.margin):
        bad = bad if number is None else bad | number.isnan()
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
