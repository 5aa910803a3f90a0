"""Probabilities instead of logits: they are refused, or turned into logits if the user says so."""

import math
import warnings

import torch
from torch import Tensor

from ..functional.checks import are_probabilities, probabilities_message

# How far the sum of a row may be from 1: probabilities are often written with three digits.
SUM_TOLERANCE = 0.02
# A probability of 0 is replaced by this number, whose logarithm is about -69.1.
SMALLEST = 1e-30
REMEDY = (
    "give the logits, or from_probabilities=True (--probabilities on the command line), which takes the logarithm; "
    "if they are logits, add 1 to every logit of every set, which does not change the softmax"
)


class Shares:
    """Whether logits are probabilities after all: `add` each block of rows, then `refuse` them or `warn` of them."""

    def __init__(self) -> None:
        self._every_row: bool | None = None
        self._within, self._low, self._high = True, math.inf, -math.inf
        self._sums = (math.inf, -math.inf)

    def add(self, logits: Tensor) -> None:
        """Look at a block of shape (n, C)."""
        if logits.numel() == 0:
            return
        if self._every_row is not False:
            self._every_row = bool(are_probabilities(logits, 1, slack=SUM_TOLERANCE))
        if self._within:
            low, high = (float(x) for x in logits.aminmax())
            self._within = low >= 0 and high <= 1  # False for NaN
            self._low, self._high = min(low, self._low), max(high, self._high)
        if self._within:
            sums = logits.sum(1, dtype=torch.float64)
            self._sums = min(self._sums[0], float(sums.min())), max(self._sums[1], float(sums.max()))

    def refuse(self) -> None:
        """Raise if every row was a probability vector."""
        if self._every_row:
            raise ValueError(probabilities_message("every row", REMEDY))

    def warn(self, name: str, stacklevel: int) -> None:
        """Warn if all logits lie in [0, 1] and are not all equal: the logits of a network hardly ever do so."""
        if self._every_row is False and self._within and self._low < self._high:
            warnings.warn(
                f"{name}: every value lies in [0, 1], as probabilities do, but the rows sum to {self._sums[0]:.4g} up "
                f"to {self._sums[1]:.4g}, so they are used as logits; if they are not, give the logits instead",
                stacklevel=stacklevel + 1,
            )


def refuse_probabilities(logits: Tensor) -> None:
    """Raise for logits of shape (N, C) that are probabilities."""
    shares = Shares()
    shares.add(logits)
    shares.refuse()


def warn_of_shares(logits: Tensor, name: str) -> None:
    """Warn if all logits of shape (N, C) lie in [0, 1]; see `Shares`."""
    if logits.ndim == 2:
        shares = Shares()
        shares.add(logits)
        shares.warn(name, 4)


def logarithms(probabilities: Tensor) -> Tensor:
    """Logits of probabilities of shape (N, C): their logarithms, at least in float32.

    A probability of 0 is replaced by 1e-30. Its logarithm is about -69.1, so that a target of probability 0 has a large
    but finite loss. A logit of -inf would mean that the class is impossible, and a rounded 0 does not mean that.

    >>> logarithms(torch.tensor([[0.5, 0.5, 0.0]]))
    tensor([[ -0.6931,  -0.6931, -69.0776]])
    """
    if probabilities.ndim == 2 and len(probabilities):
        promised = Promised()
        promised.add(probabilities)
        promised.finish()
    return take_logarithms(probabilities)


def take_logarithms(probabilities: Tensor) -> Tensor:
    """The same without a look at the rows."""
    wide = probabilities if probabilities.dtype == torch.float64 else probabilities.float()
    return wide.clamp_min(SMALLEST).log()


class Promised:
    """Whether rows are the probabilities that they should be: `add` each block, then `finish` raises if they are not.

    No value may be negative, and every row must sum to 1.
    """

    def __init__(self) -> None:
        self.rows, self.bad, self._first, self._got = 0, 0, 0, ""

    def add(self, probabilities: Tensor) -> None:
        """Look at a block of shape (n, C)."""
        low, total = probabilities.amin(1), probabilities.sum(1, dtype=torch.float64)
        bad = ~((low >= 0) & ((total - 1).abs() <= SUM_TOLERANCE))  # a row with NaN is bad too
        found = int(bad.sum())
        if found and not self.bad:
            row = int(bad.nonzero()[0])
            self._first = self.rows + row
            self._got = ", ".join(f"{word} {_short(x[row])}" for word, x in (("smallest", low), ("sum", total)))
        self.bad += found
        self.rows += len(probabilities)

    def finish(self) -> None:
        """Raise if there were rows that are no probabilities."""
        if self.bad:
            raise ValueError(
                f"expected probabilities, not negative and of sum 1 within {SUM_TOLERANCE} in every row, got something "
                f"else in {self.bad} of {self.rows} rows, first in row {self._first} ({self._got}); "
                "for logits, leave out from_probabilities=True (--probabilities)"
            )


def _short(value: Tensor) -> str:
    number = float(value)
    return "nan" if math.isnan(number) else f"{number:.4g}"
