"""Calls of the native kernels with tensors on the CPU."""

import ctypes

import torch
from torch import Tensor

from ...core import tails
from ...core.rows import sums_by_blocks
from ..triton.launch import as_matrix, empty_rows
from .library import library

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
# How many logits a vector of cpu/vectors.h holds; rows that are shorter are always transposed.
LANES = 16
# Up to this many classes, rows are transposed, so that a vector holds one class of many rows: this is faster, as
# `python -m benchmarks.paths` shows.
TALL_CLASSES = 47
# Up to this many trials, the continued fraction does not overflow float64, and the table of binomials is exact enough.
MOST_TRIALS = 1000


def row_sums(logits: Tensor, extras: bool) -> list[Tensor]:
    """The sums of each row in one pass; with torch's operations if there is no kernel for the dtype."""
    if logits.dtype not in DTYPES:
        return list(sums_by_blocks(logits, extras))
    out = empty_rows(logits, extras)
    if logits.numel() == 0:
        return out
    matrix = as_matrix(logits)
    rows, classes = matrix.shape
    run = getattr(library(), f"row_sums_{DTYPES[logits.dtype]}")
    sizes = [ctypes.c_int64(size) for size in (rows, classes, matrix.stride(0))]
    run(_place(matrix), *sizes, int(classes <= TALL_CLASSES), *map(_place, [*out, None, None][:6]))
    return out


def coins(classes: int, odds: Tensor, *tensors: Tensor) -> None:
    """Fill loss, concentration and free gap from odds, squares, mass and mass_squares; all tensors are contiguous."""
    run = getattr(library(), f"coins_{str(odds.dtype).removeprefix('torch.')}")
    places = [_place(x) for x in (odds, *tensors)]
    run(*places, ctypes.c_int64(odds.numel()), ctypes.c_double(classes - 1.0))


def log_tails(given: Tensor, trials: int, odds: Tensor, *, expected: bool) -> tuple[Tensor, Tensor]:
    """Log tails and their derivatives, for given wins or, with `expected`, for the wins that follow from losses."""
    given, odds = given.double().contiguous(), odds.double().contiguous()
    if trials > MOST_TRIALS:
        wins = tails.expected_wins(given, trials) if expected else given.ceil()
        return tails.log_tail_and_slope(wins, trials, odds)
    out, slope, table = torch.empty_like(odds), torch.empty_like(odds), tails.log_choices(trials, odds)
    sizes = ctypes.c_int64(odds.numel()), ctypes.c_int64(trials), tails.continued_steps(trials)
    places = [_place(x) for x in (given, odds, table, out, slope)]
    library().log_tails(*places, *sizes, int(expected))
    return out, slope


def _place(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())
