"""What is taken from a file that is read in parts, and the checks of all rows, which end with the last part."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .array_streams import Source
from .checks import FiniteColumn, FiniteRows, Targets, check_shape
from .formats import ContentError
from .probabilities import Promised, Shares, take_logarithms
from .row_arrays import hollow
from .selection import Choice, as_target, check_plain, choose, parts_of
from .sets import class_indices, floating, printable_keys


class LogitBlock(NamedTuple):
    """Some rows of a set.

    Attributes:
        start: the number of the first row.
        logits: (n, C), floating.
        target: (n,) class indices, or None.
    """

    start: int
    logits: Tensor
    target: Tensor | None


class Inspection:
    """Takes logits and targets from the parts of a file, and looks at each row as a LogitSet does.

    Attributes:
        num_classes: C.
        total: the number of rows, or None if it is not known yet.
        rows: the number of rows so far.
    """

    def __init__(self, choice: Choice, headers: Mapping[Any, Any], total: int | None, how: Mapping[str, Any]) -> None:
        self._choice, self._headers, self.total, self.rows = choice, headers, total, 0
        self._given = 0
        self._from_probabilities, self._classes = how["from_probabilities"], how["classes"]
        self.num_classes: int = headers[choice.logits].shape[1]
        self._promised, self._finite, self._shares = Promised(), FiniteRows(), Shares()
        self._columns = {name: FiniteColumn(name) for name in choice.scores}
        self._targets = Targets(self.num_classes)

    @property
    def good(self) -> bool:
        """False from the first row on that is certain to be an error."""
        return not self._promised.bad and not self._finite.bad and self._targets.good

    def blocks(self, source: Source, rows: int) -> Iterator[LogitBlock]:
        """The blocks of a file, as long as all is well; the rest is looked at as well."""
        wanted = [x for x in (self._choice.target, *self._choice.scores) if x is not None]
        fitting = [x for x in wanted if self.total in (None, source.num_rows(x))]
        for name in wanted:
            if name not in fitting:
                self._take({name: source.whole(name)})
        for part in source.blocks([self._choice.logits, *fitting], self.total, rows):
            block = self._look(part)
            aligned = block.target is None or block.target.shape == block.logits.shape[:1]
            if self.good and aligned and len(fitting) == len(wanted):
                yield block
                self._given += len(block.logits)
            self.rows += len(block.logits)

    def _look(self, part: Mapping[Any, Any]) -> LogitBlock:
        """The rows of one part, after a look at each."""
        logits = floating(part[self._choice.logits])
        if self._from_probabilities:
            self._promised.add(logits)
            logits = take_logarithms(logits)
        self._finite.add(logits)
        self._shares.add(logits)
        return LogitBlock(self.rows, logits, self._take(part))

    def _take(self, part: Mapping[Any, Any]) -> Tensor | None:
        """Look at the scores of a part, and return its targets."""
        for name, column in self._columns.items():
            if isinstance(part.get(name), Tensor):
                column.add(floating(part[name], f"column {name!r}"))
        key = self._choice.target
        if key is None or key not in part:
            return None
        values, header = part[key], self._headers[key]
        if self._choice.named:
            values = as_target(values, key, self._classes, first=self.rows)
        check_plain(values, _where(self._choice, "target"), None if isinstance(header, Tensor) else header)
        target = class_indices(values)
        self._targets.add(target)
        return target

    def finish(self, headers: Any, name: str) -> str:
        """Raise or warn as `read_logits` does of the whole file, and return the note about what is left out."""
        choice, parts = choose(headers, from_probabilities=self._from_probabilities), parts_of(headers)
        try:
            self._promised.finish()
            printable_keys({x: parts[x] for x in choice.scores})
            self._shares.warn(name, 5)
            check_shape(hollow((self.rows, self.num_classes), torch.float64))
            self._finite.finish()
            self._shares.refuse()
            for x in choice.scores:
                self._columns[x].finish(parts[x].shape, self.rows)
            if choice.target is not None:
                self._targets.finish(self.rows)
        except (TypeError, ValueError) as error:
            raise ContentError(str(error)) from None
        if self._given != self.rows:
            raise ContentError(
                f"expected blocks of all {self.rows} rows, got {self._given}; please report this as a bug"
            )
        return choice.note


def look(source: Source, *, from_probabilities: bool, classes: Sequence[str] | None) -> Inspection:
    """Decide which parts of a file are the logits, the targets and the scores, before any row is read."""
    headers = source.headers()
    choice = choose(headers, from_probabilities=from_probabilities)
    parts = parts_of(headers)
    for key, role in ((choice.logits, "logits"), *((x, x) for x in choice.scores)):
        check_plain(parts[key], _where(choice, role))
    if isinstance(parts.get(choice.target), Tensor):
        if choice.named:
            as_target(parts[choice.target], choice.target, classes)
        check_plain(parts[choice.target], _where(choice, "target"))
    logits = parts[choice.logits]
    total = source.num_rows(choice.logits) if logits.ndim else 0
    try:
        known = logits if total is not None else hollow((1, *logits.shape[1:]), logits.dtype)
        check_shape(hollow(tuple(known.shape), logits.dtype if logits.is_floating_point() else torch.float64))
    except (TypeError, ValueError) as error:
        raise ContentError(str(error)) from None
    how = {"from_probabilities": from_probabilities, "classes": classes}
    return Inspection(choice, parts, total, how)


def _where(choice: Choice, role: str) -> str:
    """What a message says of the place of an array."""
    return f"in {role!r}" if choice.named else "alone"
