"""One call of the native library each, with tensors on the CPU: nothing is checked here that the callers know.

Logits have shape (..., C) and any strides; they are copied only where their classes do not lie side by side. Results
have the shape of the logits without the class axis.
"""

import ctypes
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ...core import tails
from ...core.precision import accumulator
from .interface import DTYPES, LANES, MOST_TRIALS, describe, native, place, trials_table
from .library import threads

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
    "tally",
    "tally_evidence",
]

# What `columns` and `count_scores` know of a row, in the order of columns.cpp.
QUANTITIES = (
    "prediction", "odds", "loss", "concentration", "free_gap", "confidence", "dominance", "gap", "forced_gap",
    "log_p_value", "p_value", "top", "energy", "logit_gap", "entropy",
)  # fmt: skip
PARTS = {"total": 0, "forced": 1, "free": 2}

_Places = ctypes.c_void_p * len(QUANTITIES)


def row_sums(logits: Tensor, extras: bool) -> list[Tensor]:
    """Prediction, top, odds, squares, mass and mass_squares of each row; with `extras` also surprise and margin."""
    real, shape = accumulator(logits.dtype), logits.shape[:-1]
    dtypes = [torch.int64, real, real, torch.float64, torch.float64, torch.float64] + [real, real] * extras
    out = [logits.new_empty(shape, dtype=dtype) for dtype in dtypes]
    if out[0].numel():
        kept, described = describe(logits)
        native().boc_row_sums(*described, *map(place, (out if extras else [*out, None, None])))
    return out


def coins_of(logits: Tensor) -> tuple[Tensor, ...]:
    """The fields of Coins: prediction, odds, loss, concentration and free gap, in the dtype of the sums."""
    shape, real = logits.shape[:-1], accumulator(logits.dtype)
    new = logits.new_empty
    out = new(shape, dtype=torch.int64), *(new(shape, dtype=real) for _ in range(4))
    if out[0].numel():
        kept, described = describe(logits)
        native().boc_coins_of(*described, *(x.data_ptr() for x in out))
    return out


def evidence(logits: Tensor, *, extras: bool, target: Tensor | None = None) -> tuple[Tensor | None, ...]:
    """Prediction, odds, loss, concentration, free gap, top, surprise, margin and distance; all but the first float64.

    Surprise and margin are None without `extras`, the distance without a `target` of int64.
    """
    shape, new = logits.shape[:-1], logits.new_empty
    asked = [True] * 5 + [extras] * 2 + [target is not None]
    out = [new(shape, dtype=torch.int64), *(new(shape, dtype=torch.float64) if wanted else None for wanted in asked)]
    if logits.numel():
        kept, described = describe(logits)
        own = target if target is None else target.contiguous()
        native().boc_evidence(*described, place(own), *map(place, out))
    return tuple(out)


def columns(logits: Tensor, names: Sequence[str], trials: int) -> list[Tensor]:
    """Some of `QUANTITIES` of each row, in float64, the prediction in int64."""
    shape, new = logits.shape[:-1], logits.new_empty
    found = {x: new(shape, dtype=torch.int64 if x == "prediction" else torch.float64) for x in names}
    if logits.numel():
        kept, described = describe(logits)
        places = _Places(*(place(found.get(name)) for name in QUANTITIES))
        native().boc_columns(*described, *trials_table(trials), places)
    return [found[name] for name in names]


def count_scores(
    logits: Tensor,
    flags: Tensor,
    scores: Sequence[tuple[str, float]],
    trials: int,
    histogram: Tensor,
    invalid: Tensor,
) -> None:
    """Add to `histogram`, of shape (2, K, bins), one for each row and score, and to `invalid` rows with a NaN.

    Args:
        logits: shape (..., C).
        flags: booleans, one for each row or one for all: true for the second half of the histogram.
        scores: K quantities that rank the rows, each with 1.0 or -1.0, its sign.
        trials: the number of flips, for the scores that are p-values.
        histogram: int64, contiguous; the bins are those of `functional.separation.score_bin`.
        invalid: int64, one element.
    """
    if logits.numel() == 0:
        return
    _check(torch.int64, histogram, invalid)
    kept, described = describe(logits)
    flags = flags.to(torch.bool).contiguous()
    bits = histogram.shape[2].bit_length() - 1
    native().boc_count_scores(
        *described, *trials_table(trials), flags.data_ptr(), int(flags.numel() > 1), *_scores(tuple(scores)),
        len(scores), bits, histogram.data_ptr(), invalid.data_ptr(),
    )  # fmt: skip


@lru_cache(maxsize=16)
def _scores(scores: tuple[tuple[str, float], ...]) -> tuple[ctypes.Array[ctypes.c_int32], ctypes.Array[ctypes.c_double]]:
    names = [QUANTITIES.index(name) for name, _ in scores]
    return (ctypes.c_int32 * len(names))(*names), (ctypes.c_double * len(names))(*(sign for _, sign in scores))


def tally(
    logits: Tensor, target: Tensor | None, ignore_index: int | None, trials: int, alpha: float, states: Sequence[Tensor]
) -> None:
    """Add a batch to the tensors of a `functional.tally.Tally`, in place; the targets are int64."""
    if logits.numel() == 0:
        return
    kept, described = describe(logits)
    own = target if target is None else target.contiguous()
    _raise_if(
        native().boc_tally(
            *described, place(own), _number(ignore_index), *trials_table(trials), alpha, *_states(states)
        )
    )


def tally_evidence(
    numbers: Sequence[Tensor],
    target: Tensor | None,
    distance: Tensor | None,
    counted: Tensor | None,
    num_classes: int,
    trials: int,
    alpha: float,
    states: Sequence[Tensor],
) -> None:
    """The same of samples whose numbers are there: the fields of Coins in float64, in place of their logits."""
    given = [x.contiguous() for x in numbers]
    rest = [None if x is None else x.contiguous() for x in (target, distance, counted)]
    if given[0].numel():
        sizes = given[0].numel(), num_classes, threads(), *trials_table(trials)
        _raise_if(
            native().boc_tally_evidence(*map(place, given), *map(place, rest), *sizes, alpha, *_states(states))
        )


def gap_tally(
    logits: Tensor, target: Tensor | None, ignore_index: int | None, part: str, states: Sequence[Tensor]
) -> None:
    """Add the gap, or its "forced" or "free" part, to the tensors (gap, samples, invalid) of a `CoherenceGap`, in place.

    The first two have one element, or one for each predicted class.
    """
    if logits.numel() == 0:
        return
    gap, samples, invalid = states
    _check(torch.float64, gap)
    _check(torch.int64, samples, invalid)
    kept, described = describe(logits)
    own = target if target is None else target.contiguous()
    out = gap.numel(), gap.data_ptr(), samples.data_ptr(), invalid.data_ptr()
    _raise_if(native().boc_gap_tally(*described, place(own), _number(ignore_index), PARTS[part], *out))


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


@lru_cache(maxsize=16)
def _number(value: int | None) -> ctypes.Array[ctypes.c_int64] | None:
    """Memory with that number in it."""
    return None if value is None else (ctypes.c_int64 * 1)(value)


def _states(states: Sequence[Tensor]) -> tuple[int, ...]:
    """The number of bins, and the places of the tensors of a tally."""
    counts, sums, gap_histogram, bin_counts, bin_sums = states
    _check(torch.int64, counts, gap_histogram, bin_counts)
    _check(torch.float64, sums, bin_sums)
    return bin_counts.shape[1], *(x.data_ptr() for x in states)


def _check(dtype: torch.dtype, *states: Tensor) -> None:
    """Raise unless the library may write there."""
    for state in states:
        if state.dtype is not dtype or not state.is_contiguous():
            raise TypeError(f"expected contiguous states in {dtype}, got {state.dtype} with strides {state.stride()}")


def _raise_if(failed: int) -> None:
    if failed:
        raise MemoryError("the native library got no memory")
