"""What must be true of every row of a set of logits. Rows come in one block or in many, and the errors are the same."""

import torch
from torch import Tensor

from ..core.tally import is_class
from ..functional.checks import check_logits, check_target


def check_shape(logits: Tensor) -> None:
    """Raise unless the logits have the shape (N, C) with at least one row and two classes."""
    check_logits(logits, -1)
    if logits.ndim != 2 or len(logits) == 0:
        got = f"shape {tuple(logits.shape)}"
        raise ValueError(f"expected logits of shape (N, C) with at least one row, got {got}")


class FiniteRows:
    """The rows whose largest logit is no finite number: `add` each block, then `finish` raises if there are any."""

    def __init__(self) -> None:
        self.rows, self.bad, self._first = 0, 0, 0

    def add(self, logits: Tensor) -> None:
        """Look at a block of shape (n, C)."""
        bad = ~logits.amax(1).isfinite()
        found = int(bad.sum())
        if found and not self.bad:
            self._first = self.rows + int(bad.nonzero()[0])
        self.bad += found
        self.rows += len(logits)

    def finish(self) -> None:
        """Raise if there were such rows."""
        if self.bad:
            raise ValueError(
                f"expected finite logits (or -inf for some classes), got NaN, +inf or only -inf in "
                f"{self.bad} of {self.rows} rows, first in row {self._first}; leave these rows out"
            )


class FiniteColumn:
    """The same for a column of scores."""

    def __init__(self, name: str) -> None:
        self._name, self.finite = name, True

    def add(self, values: Tensor) -> None:
        """Look at a block of the column."""
        self.finite = self.finite and bool(values.isfinite().all())

    def finish(self, shape: torch.Size, rows: int) -> None:
        """Raise unless the whole column, of this shape, has one finite number for each of the rows."""
        if shape != (rows,) or not self.finite:
            raise ValueError(
                f"expected column {self._name!r} as {rows} finite numbers, got shape {tuple(shape)}"
                + ("" if self.finite else " with NaN or inf")
            )


class Targets:
    """The same for targets: whole numbers, one for each row, from 0 to C - 1."""

    def __init__(self, num_classes: int) -> None:
        self._classes, self.outside, self._first, self._dtype = num_classes, 0, 0, torch.int64
        self._rows, self._rest, self._single = 0, torch.Size(), False

    @property
    def good(self) -> bool:
        """Whether all targets so far are classes."""
        return not self.outside and self._dtype == torch.int64

    def add(self, target: Tensor) -> None:
        """Look at a block. Its dtype is int64, unless these are no class indices."""
        self._rows, self._rest = self._rows + (len(target) if target.ndim else 0), target.shape[1:]
        self._single = target.ndim == 0
        if target.dtype != torch.int64:
            self._dtype = target.dtype
            return
        outside = ~is_class(target, self._classes)
        found = int(outside.sum())
        if found and not self.outside:
            self._first = int(target[outside][0])
        self.outside += found

    def finish(self, rows: int) -> None:
        """Raise unless the targets are one class for each of the rows."""
        shape = () if self._single else (self._rows, *self._rest)
        check_target(torch.empty(shape, dtype=self._dtype, device="meta"), torch.Size([rows]))
        if self.outside:
            raise ValueError(
                f"expected targets in [0, {self._classes}), got {self.outside} outside, such as {self._first}"
            )
