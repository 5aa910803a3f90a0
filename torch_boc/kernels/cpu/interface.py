"""The functions of the native library: what each takes, and how tensors are described to it."""

import ctypes
import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ...core.tails import continued_steps
from .library import library, threads

# The dtypes of logits, and the number of each in the library.
DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}
# How many logits a vector of vectors.h holds; rows that are shorter are always transposed.
LANES = 16
# Up to this many classes, rows are transposed, so that a vector holds one class of many rows: this was timed as faster.
TALL_CLASSES = 47
# Up to this many trials, the continued fraction does not overflow float64, and the table of binomials is exact enough.
MOST_TRIALS = 1000
# The quantities of a row, in the order of columns.cpp.
QUANTITIES = (
    "prediction", "odds", "loss", "concentration", "free_gap", "confidence", "dominance", "gap", "forced_gap",
    "log_p_value", "p_value", "top", "energy", "logit_gap", "entropy", "log_odds", "tempered_loss", "logit_gap_top",
    "gen",
)  # fmt: skip

_POINTER, _SIZE, _NUMBER, _REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_double
_LOGITS = [_POINTER] + [_SIZE] * 6 + [_NUMBER] * 3
_TRIALS = [_SIZE, _NUMBER, _POINTER]
_STATES = [_REAL, _SIZE] + [_POINTER] * 5
_SIGNATURES = {
    "boc_row_sums": _LOGITS + [_POINTER] * 8,
    "boc_coins_of": _LOGITS + [_POINTER] * 5,
    "boc_evidence": _LOGITS + [_POINTER] * 14,
    "boc_columns": _LOGITS + _TRIALS + [_POINTER],
    "boc_count_scores": _LOGITS + _TRIALS + [_POINTER, _SIZE, _POINTER, _POINTER, _SIZE, _NUMBER, _POINTER, _POINTER],
    "boc_tally": _LOGITS + [_POINTER] * 2 + _TRIALS + _STATES,
    "boc_tally_evidence": [_POINTER] * 8 + [_SIZE] * 2 + [_NUMBER] + _TRIALS + _STATES,
    "boc_gap_tally": _LOGITS + [_POINTER] * 2 + [_NUMBER, _SIZE] + [_POINTER] * 3,
    "boc_coins_float32": [_POINTER] * 7 + [_SIZE, _REAL, _NUMBER],
    "boc_coins_float64": [_POINTER] * 7 + [_SIZE, _REAL, _NUMBER],
    "boc_standing": _LOGITS + [_POINTER] * 3,
    "boc_gradient": _LOGITS + [_POINTER] * 12,
    "boc_log_tails": [_POINTER] * 4 + [_SIZE] + _TRIALS + [_NUMBER] * 2,
}
# These functions return whether they ran out of memory; the others return nothing.
_MAY_FAIL = ("boc_tally", "boc_tally_evidence", "boc_gap_tally")


@lru_cache
def native(variant: str | None = None) -> ctypes.CDLL:
    """The library of one variant, by default the one in use, whose functions know the types of their arguments."""
    loaded = library(variant)
    for name, types in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = types, ctypes.c_int32 if name in _MAY_FAIL else None
    return loaded


@lru_cache(maxsize=16)
def trials_table(trials: int) -> tuple[int, int, ctypes.Array[ctypes.c_double]]:
    """The trials, half the steps of the continued fraction, and the log of binomial(k, w) for each w in 0..k."""
    if not 1 <= trials <= MOST_TRIALS:
        raise ValueError(f"expected 1 to {MOST_TRIALS:,} trials for the native library, got {trials:,}")
    table = (ctypes.c_double * (trials + 1))(*(math.log(math.comb(trials, wins)) for wins in range(trials + 1)))
    return trials, continued_steps(trials), table


def table_for(trials: int, names: Sequence[str]) -> tuple[int, int, ctypes.Array[ctypes.c_double]]:
    """The table of the trials, or any table where no p-value is asked for."""
    return trials_table(trials if "log_p_value" in names or "p_value" in names else 1)


def describe(logits: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """The tensor whose memory is read, and the first arguments of the functions. Keep the tensor until it is read.

    The tensor is the logits themselves if their rows lie in at most two regular steps, and if either the classes of a
    row lie side by side or the rows do, like the pixels of an image whose class axis comes first. Otherwise it is a
    copy.
    """
    if logits.dim() == 2:
        (rows, classes), (stride, step) = logits.shape, logits.stride()
        if step == 1:
            return logits, (
                logits.data_ptr(), rows, classes, rows, stride, 0, 1, DTYPES[logits.dtype], TALL_CLASSES, threads()
            )  # fmt: skip
    return _describe(logits)


def _describe(logits: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    axes = _merged(logits)
    if len(axes) > 2 or not (logits.stride(-1) == 1 or (axes and axes[-1][1] == 1 and axes[-1][0] >= LANES)):
        logits = logits.contiguous()
        axes = _merged(logits)
    (outer, jump), (inner, stride) = [(1, 0), (1, 0), *axes][-2:]
    kind = DTYPES[logits.dtype], TALL_CLASSES, threads()
    return logits, (logits.data_ptr(), outer * inner, logits.shape[-1], inner, stride, jump, logits.stride(-1), *kind)


def _merged(logits: Tensor) -> list[tuple[int, int]]:
    """Size and stride of the axes before the classes. Those that lie in one regular step are joined."""
    axes: list[tuple[int, int]] = []
    for size, stride in zip(logits.shape[:-1], logits.stride()[:-1], strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * stride:
            axes[-1] = axes[-1][0] * size, stride
        else:
            axes.append((size, stride))
    return axes


def place(tensor: Tensor | None) -> int | None:
    """The address of a tensor, or None."""
    return None if tensor is None else tensor.data_ptr()
