"""When to stop a sequence: the running mean of one of its numbers crosses a threshold."""

import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Self

from torch import Tensor

from ..core.precision import widen
from ..functional.checks import check_share
from ..functional.conformal import threshold_rank
from ..functional.tokens import TOKEN_COLUMNS
from ..language.record import TokenRecord
from ..language.trace import Trace

# The quantities whose low values are the alarming ones.
LOW = ("log_probability", "confidence")


@dataclass(frozen=True)
class Stop:
    """Stop a sequence when the mean of the last `window` values of a quantity crosses a threshold.

    It never stops a sequence that has fewer tokens than the window. A window with NaN stops nothing.

    Args:
        quantity: a name in `torch_boc.functional.tokens.TOKEN_COLUMNS`, such as "lost_coins" or "confidence".
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
        if self.quantity not in TOKEN_COLUMNS:
            raise ValueError(f"expected quantity as one of {', '.join(TOKEN_COLUMNS)}, got {self.quantity!r}")
        if (self.above is None) == (self.below is None):
            raise ValueError(f"expected either above or below, got above={self.above} and below={self.below}")
        if isinstance(self.window, bool) or not isinstance(self.window, int) or self.window < 1:
            raise ValueError(f"expected window as a positive integer, got {self.window!r}")

    def crossed_by(self, mean: Tensor) -> Tensor:
        """Which running means are beyond the threshold; NaN is not."""
        return mean < self.below if self.below is not None else mean > self.above  # type: ignore[operator]

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
            side: "above" or "below", where the alarming values are. By default "below" for `log_probability` and
                `confidence`, and "above" for the others.
        """
        side = ("below" if quantity in LOW else "above") if side is None else side
        cls(quantity, **{side: 0.0}, window=window)  # raises for a bad quantity, side or window
        check_share("alpha", alpha)
        sign = 1.0 if side == "above" else -1.0
        highest: list[float] = []
        for part in [trusted] if isinstance(trusted, Trace | TokenRecord) else trusted:
            for record in part.records if isinstance(part, Trace) else [part]:
                if quantity not in record.numbers:
                    raise ValueError(f"expected records with {quantity!r}, got {', '.join(record.numbers)}")
                means = sign * running_means(record.numbers[quantity][record.prompt_length :], window)
                highest.append(max(means[~means.isnan()].tolist(), default=-math.inf))
        # A new number that is exchangeable with these n is above the k-th highest with a chance of at most k / (n + 1).
        rank = threshold_rank(len(highest), alpha)
        if rank == 0:
            raise ValueError(
                f"expected at least {math.ceil(1 / alpha - 1e-9) - 1} sequences for alpha={alpha}, got {len(highest)}; "
                "give more of them, or a larger alpha"
            )
        found = sorted(highest, reverse=True)[rank - 1]
        if math.isinf(found):
            raise ValueError(
                f"expected at least {rank} sequences that are as long as the window and have no NaN, got "
                f"{sum(map(math.isfinite, highest))}; give longer ones, or a smaller window"
            )
        return cls(quantity, window=window, **{side: sign * found})


def running_means(values: Tensor, window: int) -> Tensor:
    """The mean of each `window` successive values: (..., T) to (..., T - window + 1), in float64 (float32 on MPS).

    A window with NaN has the mean NaN. If there are fewer values than the window, the result is empty.

    >>> running_means(torch.tensor([1.0, 3.0, 5.0, 0.0]), 2)
    tensor([2.0000, 4.0000, 2.5000], dtype=torch.float64)
    """
    values = widen(values)
    return values.unfold(-1, window, 1).mean(-1) if values.shape[-1] >= window else values[..., :0]
