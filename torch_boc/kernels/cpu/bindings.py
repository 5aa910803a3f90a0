"""The four calls of the native library, with tensors on the CPU. The operators check the arguments.

Logits have shape (..., C) and any strides; they are copied only if neither the classes nor the rows lie side by side.
"""

import ctypes
import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ...core.row_numbers import dtypes_of
from ...core.schema import LOGITS, PULLS, QUANTITIES, SAMPLES, Labels, Tally
from ...core.tails import continued_steps
from ..layout import join
from .loader import library, threads

# The dtypes of logits, and the number of each in the library.
DTYPES = {getattr(torch, name): number for number, name in enumerate(LOGITS)}
# How many rows must lie side by side for them to be read without a copy.
LANES = 16
# Up to this many trials, the continued fraction does not overflow float64, and the table of binomials is exact enough.
MOST_TRIALS = 1000

_PLACES = {name: place for place, name in enumerate(QUANTITIES)}
_Columns = ctypes.c_void_p * len(QUANTITIES)
_Pulls = ctypes.c_void_p * len(PULLS)
_Samples = ctypes.c_void_p * len(SAMPLES)
_States = ctypes.c_void_p * len(Tally._fields)


def columns(logits: Tensor, names: Sequence[str], index: Tensor | None, keep_dtype: bool) -> list[Tensor]:
    """The numbers with these names; real ones are in the dtype of the sums if `keep_dtype`, otherwise in float64."""
    kinds, places = dtypes_of(tuple(names), logits.dtype, keep_dtype), _Columns()
    out = [logits.new_empty(logits.shape[:-1], dtype=kinds[0])]
    for kind in kinds[1:]:
        out.append(torch.empty_like(out[0], dtype=kind))  # this takes half the time of `new_empty`
    if logits.numel():
        for name, x in zip(names, out, strict=True):
            places[_PLACES[name]] = x.data_ptr()
        index = index if index is None else index.contiguous()
        logits, layout = _with_layout(logits)
        pointer = None if index is None else index.data_ptr()
        if library().boc_columns(*layout, pointer, keep_dtype, places):
            raise MemoryError("the native library got no memory")
    return out


def gradient(logits: Tensor, sums: Sequence[Tensor], grads: Sequence[Tensor | None], out: Tensor) -> None:
    """Fill the gradient of the logits; `sums` are prediction, top, odds and mass."""
    logits, layout = _with_layout(logits if logits.stride(-1) == 1 else logits.contiguous())
    vectors = [None if x is None else x.contiguous() for x in (*sums, *grads)]
    places = _Pulls(*[None if x is None else x.data_ptr() for x in vectors])
    library().boc_gradient(*layout, places, out.data_ptr())


def tally(
    given: Sequence[Tensor], labels: Labels, num_classes: int, trials: int, alpha: float, *states: Tensor
) -> None:
    """Add samples to the tensors of a tally, in place; `given` are only the logits, or the fields of coins."""
    target, distance, counted = labels
    options = *_table(trials), alpha, states[-1].shape[1], _States(*[x.data_ptr() for x in states])
    from_logits = len(given) == 1
    numbers = () if from_logits else (*given, None if target is None else distance)
    samples = [None if x is None else x.contiguous() for x in (target, counted, *numbers)]
    places = [None if x is None else x.data_ptr() for x in samples]
    if from_logits:
        logits, layout = _with_layout(given[0])
        failed = logits.numel() and library().boc_tally_logits(*layout, *places, *options)
    else:
        failed = library().boc_tally(_Samples(*places), given[0].numel(), num_classes, threads(), *options)
    if failed:
        raise MemoryError("the native library got no memory")


def log_tails(wins: Tensor, trials: int, odds: Tensor) -> tuple[Tensor, Tensor]:
    """The log tails and their derivatives in the odds."""
    wins, odds = wins.contiguous(), odds.contiguous()
    out, slope = torch.empty_like(odds), torch.empty_like(odds)
    places = [x.data_ptr() for x in (wins, odds, out, slope)]
    library().boc_log_tails(*places, odds.numel(), threads(), *_table(trials))
    return out, slope


@lru_cache(maxsize=16)
def _table(trials: int) -> tuple[int, int, ctypes.Array[ctypes.c_double]]:
    """The trials, half the steps of the continued fraction, and the log of binomial(k, w) for each w in 0..k."""
    table = (ctypes.c_double * (trials + 1))(*(math.log(math.comb(trials, wins)) for wins in range(trials + 1)))
    return trials, continued_steps(trials), table


def _with_layout(logits: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """The tensor whose memory is read, and the first arguments of the functions. Keep the tensor until it is read.

    The tensor is the logits themselves if their rows lie in at most two regular steps, and if either the classes of a
    row lie side by side or the rows do, like the pixels of an image whose class axis comes first. Otherwise it is a
    copy.
    """
    classes, kind = logits.shape[-1], (DTYPES[logits.dtype], threads())
    rows = logits.numel() // classes
    if logits.is_contiguous():
        return logits, (logits.data_ptr(), rows, classes, rows, classes, 0, 1, *kind)
    axes = join([x for x in zip(logits.shape[:-1], logits.stride()[:-1], strict=True) if x[0] > 1])
    if len(axes) > 2 or not (logits.stride(-1) == 1 or (axes and axes[-1][1] == 1 and axes[-1][0] >= LANES)):
        return _with_layout(logits.contiguous())
    (_, jump), (inner, stride) = [(1, 0), (1, 0), *axes][-2:]
    return logits, (logits.data_ptr(), rows, classes, inner, stride, jump, logits.stride(-1), *kind)
