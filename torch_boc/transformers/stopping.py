"""When to stop a sequence: the running mean of one of its numbers crosses a threshold."""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Self

import torch
from torch import Tensor

from ..functional.running import extreme_mean, extreme_threshold, running_means
from ..functional.tokens import TOKEN_COLUMNS
from ..language.record import TokenRecord
from ..language.trace import Trace

# The quantities whose low values are the alarming ones.
LOW = ("log_probability", "confidence", "p_in_distribution")
QUANTITIES = (*TOKEN_COLUMNS, "p_in_distribution")


@dataclass(frozen=True)
class Stop:
    """Stop a sequence when the mean of the last `window` values of a quantity crosses a threshold.

    It never stops a sequence that has fewer tokens than the window. A window with NaN stops nothing.

    Args:
        quantity: a name in `torch_boc.functional.tokens.TOKEN_COLUMNS`, such as "lost_coins" or "confidence", or
            "p_in_distribution", which needs `BoCGeneration(test=...)`.
        above: stop if the mean is above this number; or
        below: stop if the mean is below this number.
        window: the number of tokens in the mean.

    >>> Stop("confidence", below=0.2, window=8)
    Stop(quantity='confidence', above=None, below=0.2, window=8)
    """

    quantity: str
    _: KW_ONLY
    above: float | None = None
    below: float | None = None
    window: int = 16

    def __post_init__(self) -> None:
        """Refuse what cannot be a rule."""
        if self.quantity not in QUANTITIES:
            raise ValueError(f"expected quantity as one of {', '.join(QUANTITIES)}, got {self.quantity!r}")
        if (self.above is None) == (self.below is None):
            raise ValueError(f"expected either above or below, got above={self.above} and below={self.below}")
        for threshold in (self.above, self.below):
            if threshold is not None and threshold != threshold:
                raise ValueError("expected a threshold that is a number, got nan")
        _check_window(self.window)

    def crossed_by(self, mean: Tensor) -> Tensor:
        """Which running means are beyond the threshold; NaN is not."""
        if self.above is not None:
            return mean > self.above
        assert self.below is not None
        return mean < self.below

    @classmethod
    def calibrated(
        cls,
        trusted: Trace | Iterable[Trace | TokenRecord],
        quantity: str,
        *,
        window: int = 16,
        alpha: float = 0.05,
        side: str | None = None,
    ) -> Self:
        """A rule that stops a familiar sequence with a chance of at most `alpha`, however often it is looked at.

        A sequence is looked at after each of its tokens, so its number is its most extreme running mean. The threshold
        is a conformal one for that number: if a new sequence is exchangeable with the trusted ones, the chance that it
        is stopped anywhere is at most `alpha`. A longer sequence has more running means, so let the trusted sequences
        be as long as those that you generate, and made in the same way. Prompts do not count.

        Args:
            trusted: traces or records of trusted sequences, at least 1 / alpha - 1 of them.
            quantity: as for `Stop`.
            window: as for `Stop`.
            alpha: the largest chance that a familiar sequence is stopped.
            side: "above" or "below", where the alarming values are. By default "below" for `log_probability`,
                `confidence` and `p_in_distribution`, and "above" for the others.
        """
        side = ("below" if quantity in LOW else "above") if side is None else side
        if side not in ("above", "below"):
            raise ValueError(f"expected side as 'above' or 'below', got {side!r}")
        cls(quantity, **{side: 0.0}, window=window)  # raises for a bad quantity or window
        highest = side == "above"
        sequences = [_values(record, quantity) for record in _records(trusted)]
        extremes = torch.tensor([extreme_mean(x, window, highest=highest) for x in sequences], dtype=torch.float64)
        threshold = extreme_threshold(extremes, alpha, highest=highest)
        return cls(quantity, window=window, **{side: threshold})


def _check_window(window: int) -> None:
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise ValueError(f"expected window as a positive integer, got {window!r}")


def _records(trusted: Trace | Iterable[Trace | TokenRecord]) -> list[TokenRecord]:
    parts = [trusted] if isinstance(trusted, Trace | TokenRecord) else list(trusted)
    found: list[TokenRecord] = []
    for part in parts:
        if not isinstance(part, Trace | TokenRecord):
            raise TypeError(f"expected trusted as traces or records of tokens, got {type(part).__name__}")
        found += part.records if isinstance(part, Trace) else [part]
    return found


def _values(record: TokenRecord, quantity: str) -> Tensor:
    """The values of the generated tokens, or of a whole text without its first token, which has none."""
    if quantity not in record.numbers:
        raise ValueError(f"expected records with {quantity!r}, got {', '.join(record.numbers)}")
    values = record.numbers[quantity][record.prompt_length :]
    return values[1:] if len(values) and bool(values[0].isnan()) else values


class Watch:
    """The last values of each sequence on the device, and which sequences are stopped. Nothing is read back."""

    def __init__(self, rule: Stop) -> None:
        self.rule = rule
        self._last: Tensor | None = None  # (rows, window)
        self._stopped: Tensor | None = None  # (rows,)

    def look(self, values: Tensor, previous: Tensor | None) -> Tensor:
        """Which sequences are stopped, after each got one more value.

        Args:
            values: (rows,).
            previous: (rows,), the row of each sequence at the call before; None if rows keep their places.
        """
        if self._last is None or self._stopped is None:
            self._last = values.new_full((len(values), self.rule.window), torch.nan)
            self._stopped = torch.zeros_like(values, dtype=torch.bool)
        elif previous is not None:
            self._last, self._stopped = (x.index_select(0, previous) for x in (self._last, self._stopped))
        self._last = torch.cat([self._last[:, 1:], values.unsqueeze(1)], 1)
        mean = running_means(self._last, self.rule.window).squeeze(1)
        self._stopped = self._stopped | self.rule.crossed_by(mean)
        return self._stopped
