"""Functions that each call the native library once, with tensors on the CPU. Their callers check the arguments.

Logits have shape (..., C) and any strides; they are copied only if neither the classes nor the rows lie side by side
(see `describe`). Results have the shape of the logits without the class axis.
"""

import ctypes
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from ...core import tails
from ...core.extras import EXTRAS
from ...core.precision import accumulator
from .interface import DTYPES, LANES, MOST_TRIALS, QUANTITIES, describe, native, place, table_for, trials_table
from .library import threads
from .tallies import count_scores, gap_tally, tally, tally_evidence

__all__ = [
    "DTYPES",
    "LANES",
    "MOST_TRIALS",
    "QUANTITIES",
    "coins",
    "coins_of",
    "columns",
    "count_scores",
    "evidence",
    "gap_tally",
    "log_tails",
    "row_sums",
    "standing",
    "tally",
    "tally_evidence",
]

_Places = ctypes.c_void_p * len(QUANTITIES)


def row_sums(logits: Tensor, extras: bool) -> list[Tensor]:
    """Prediction, top, odds, squares, mass and mass_squares of each row; with `extras` also surprise and margin."""
    prediction, real = _predictions(logits), accumulator(logits.dtype)
    wide = torch.float64
    out = [prediction, *(torch.empty_like(prediction, dtype=dtype) for dtype in (real, real, wide, wide, wide))]
    if extras:
        out += [torch.empty_like(out[1]), torch.empty_like(out[1])]
    if prediction.numel():
        logits, described = describe(logits)
        native().boc_row_sums(*described, *map(place, (out if extras else [*out, None, None])))
    return out


def coins_of(logits: Tensor) -> tuple[Tensor, ...]:
    """The fields of Coins: prediction, odds, loss, concentration and free gap, in the dtype of the sums."""
    prediction = _predictions(logits)
    odds = torch.empty_like(prediction, dtype=accumulator(logits.dtype))
    out = prediction, odds, torch.empty_like(odds), torch.empty_like(odds), torch.empty_like(odds)
    if prediction.numel():
        logits, described = describe(logits)
        native().boc_coins_of(*described, *(x.data_ptr() for x in out))
    return out


def evidence(logits: Tensor, *, extras: Collection[str], target: Tensor | None = None) -> tuple[Tensor | None, ...]:
    """Prediction, odds, loss, concentration, free gap, top, surprise, margin, distance, and those of `core.extras`.

    All but the first are float64. Surprise, margin and the numbers of `core.extras` are None unless they are among the
    `extras`; one of surprise and margin brings both. The distance is None without a `target`, which must be int64.
    """
    prediction = _predictions(logits)
    odds = torch.empty_like(prediction, dtype=torch.float64)
    sums, more = "surprise" in extras or "margin" in extras, (name in extras for name in EXTRAS)
    asked = (True, True, True, True, sums, sums, target is not None, *more)
    out = prediction, odds, *(torch.empty_like(odds) if wanted else None for wanted in asked)
    if prediction.numel():
        logits, described = describe(logits)
        own = target if target is None else target.contiguous()
        native().boc_evidence(*described, place(own), *map(place, out))
    return out


def columns(logits: Tensor, names: Sequence[str], trials: int) -> list[Tensor]:
    """The `QUANTITIES` with these names for each row: the prediction in int64, all others in float64."""
    prediction = _predictions(logits)
    real = torch.float64
    found = {x: prediction if x == "prediction" else torch.empty_like(prediction, dtype=real) for x in names}
    if prediction.numel():
        logits, described = describe(logits)
        places = _Places(*(place(found.get(name)) for name in QUANTITIES))
        native().boc_columns(*described, *table_for(trials, names), places)
    return [found[name] for name in names]


def standing(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """How many coins the class `index` of each row is expected to lose, in float64, and how many classes are ahead."""
    ahead = _predictions(logits)
    lost = torch.empty_like(ahead, dtype=torch.float64)
    if ahead.numel():
        logits, described = describe(logits if logits.stride(-1) == 1 else logits.contiguous())
        index = index.contiguous()
        native().boc_standing(*described, index.data_ptr(), lost.data_ptr(), ahead.data_ptr())
    return lost, ahead


def _predictions(logits: Tensor) -> Tensor:
    """An empty tensor for the predictions. Sizes as separate arguments are read faster than a shape."""
    shape = logits.shape[:-1]
    return logits.new_empty(*shape, dtype=torch.int64) if shape else logits.new_empty((), dtype=torch.int64)


def coins(classes: int, odds: Tensor, *tensors: Tensor) -> None:
    """Fill loss, concentration and free gap from odds, squares, mass and mass_squares; all tensors are contiguous."""
    run = native().boc_coins_float64 if odds.dtype == torch.float64 else native().boc_coins_float32
    run(*(x.data_ptr() for x in (odds, *tensors)), odds.numel(), classes - 1.0, threads())


def log_tails(given: Tensor, trials: int, odds: Tensor, *, expected: bool) -> tuple[Tensor, Tensor]:
    """Log tails and their derivatives, for given wins or, with `expected`, for the wins that follow from losses."""
    given, odds = given.double().contiguous(), odds.double().contiguous()
    if trials > MOST_TRIALS:
        wins = tails.expected_wins(given, trials) if expected else given.ceil()
        return tails.log_tail_and_slope(wins, trials, odds)
    out, slope = torch.empty_like(odds), torch.empty_like(odds)
    places = (x.data_ptr() for x in (given, odds, out, slope))
    native().boc_log_tails(*places, odds.numel(), *trials_table(trials), expected, threads())
    return out, slope
