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


def refuse_probabilities(logits: Tensor) -> None:
    """Raise for logits of shape (N, C) that are probabilities."""
    if bool(are_probabilities(logits, 1, slack=SUM_TOLERANCE)):
        raise ValueError(probabilities_message("every row", REMEDY))


def warn_of_shares(logits: Tensor, name: str) -> None:
    """Warn if all logits lie in [0, 1] and are not all equal: the logits of a network hardly ever do so."""
    if logits.ndim != 2 or logits.numel() == 0 or bool(are_probabilities(logits, 1, slack=SUM_TOLERANCE)):
        return
    low, high = (float(x) for x in logits.aminmax())
    if 0 <= low < high <= 1:
        sums = logits.sum(1, dtype=torch.float64)
        warnings.warn(
            f"{name}: every value lies in [0, 1], as probabilities do, but the rows sum to {float(sums.min()):.4g} up "
            f"to {float(sums.max()):.4g}, so they are used as logits; if they are not, give the logits instead",
            stacklevel=4,
        )


def logarithms(probabilities: Tensor) -> Tensor:
    """Logits of probabilities of shape (N, C): their logarithms, at least in float32.

    A probability of 0 is replaced by 1e-30. Its logarithm is about -69.1, so that a target of probability 0 has a large
    but finite loss. A logit of -inf would mean that the class is impossible, and a rounded 0 does not mean that.

    >>> logarithms(torch.tensor([[0.5, 0.5, 0.0]]))
    tensor([[ -0.6931,  -0.6931, -69.0776]])
    """
    if probabilities.ndim == 2 and len(probabilities):
        _check(probabilities)
    wide = probabilities if probabilities.dtype == torch.float64 else probabilities.float()
    return wide.clamp_min(SMALLEST).log()


def _check(probabilities: Tensor) -> None:
    """Raise unless no value is negative and every row sums to 1."""
    low, total = probabilities.amin(1), probabilities.sum(1, dtype=torch.float64)
    bad = (~((low >= 0) & ((total - 1).abs() <= SUM_TOLERANCE))).nonzero().flatten()  # a row with NaN is bad too
    if len(bad):
        first = int(bad[0])
        got = ", ".join(f"{word} {_short(x[first])}" for word, x in (("smallest", low), ("sum", total)))
        raise ValueError(
            f"expected probabilities, not negative and of sum 1 within {SUM_TOLERANCE} in every row, got something "
            f"else in {len(bad)} of {len(probabilities)} rows, first in row {first} ({got}); "
            "for logits, leave out from_probabilities=True (--probabilities)"
        )


def _short(value: Tensor) -> str:
    number = float(value)
    return "nan" if math.isnan(number) else f"{number:.4g}"
