"""Calls of the native library that add a batch to the states of a metric, in place."""

import ctypes
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from .interface import QUANTITIES, describe, native, place, table_for, trials_table
from .library import threads

PARTS = {"total": 0, "forced": 1, "free": 2}


def count_scores(
    logits: Tensor,
    flags: Tensor,
    names: Sequence[str],
    signs: Sequence[int],
    trials: int,
    histogram: Tensor,
    invalid: Tensor,
) -> None:
    """Count each row in `histogram`, of shape (2, K, bins), once for each score; count rows with a NaN in `invalid`.

    Args:
        logits: shape (..., C).
        flags: booleans, one for each row or one for all: true for the second half of the histogram.
        names: the quantities from which the K scores are made.
        signs: 1 or -1 for each quantity, by which it is multiplied.
        trials: the number of flips, for the scores that are p-values.
        histogram: int64, contiguous; the bins are those of `functional.separation.score_bin`.
        invalid: int64, one element.
    """
    if logits.numel() == 0:
        return
    _check(torch.int64, histogram, invalid)
    logits, described = describe(logits)
    flags, bits = flags.to(torch.bool).contiguous(), histogram.shape[2].bit_length() - 1
    native().boc_count_scores(
        *described, *table_for(trials, names), flags.data_ptr(), int(flags.numel() > 1), *_scores((*names,), (*signs,)),
        len(names), bits, histogram.data_ptr(), invalid.data_ptr(),
    )  # fmt: skip


@lru_cache(maxsize=16)
def _scores(
    names: tuple[str, ...], signs: tuple[int, ...]
) -> tuple[ctypes.Array[ctypes.c_int32], ctypes.Array[ctypes.c_double]]:
    places = map(QUANTITIES.index, names)
    return (ctypes.c_int32 * len(names))(*places), (ctypes.c_double * len(names))(*signs)


def tally(
    logits: Tensor, target: Tensor | None, ignore_index: int | None, trials: int, alpha: float, states: Sequence[Tensor]
) -> None:
    """Add a batch to the tensors of a `functional.tally.Tally`, in place; the targets are int64."""
    if logits.numel() == 0:
        return
    logits, described = describe(logits)
    own = target if target is None else target.contiguous()
    _check_memory(
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
    """The same as `tally`, from the fields of Coins in float64 in place of the logits."""
    given = [x.contiguous() for x in numbers]
    rest = [None if x is None else x.contiguous() for x in (target, distance, counted)]
    if given[0].numel():
        sizes = given[0].numel(), num_classes, threads(), *trials_table(trials)
        _check_memory(
            native().boc_tally_evidence(*map(place, given), *map(place, rest), *sizes, alpha, *_states(states))
        )


def gap_tally(
    logits: Tensor, target: Tensor | None, ignore_index: int | None, part: str, states: Sequence[Tensor]
) -> None:
    """Add the gap, or its "forced" or "free" part, to the states gap, samples and invalid, in place.

    The first two have one element, or one for each predicted class.
    """
    if logits.numel() == 0:
        return
    gap, samples, invalid = states
    _check(torch.float64, gap)
    _check(torch.int64, samples, invalid)
    logits, described = describe(logits)
    own = target if target is None else target.contiguous()
    out = gap.numel(), gap.data_ptr(), samples.data_ptr(), invalid.data_ptr()
    _check_memory(native().boc_gap_tally(*described, place(own), _number(ignore_index), PARTS[part], *out))


@lru_cache(maxsize=16)
def _number(value: int | None) -> ctypes.Array[ctypes.c_int64] | None:
    """Memory that holds this number, or None for None."""
    return None if value is None else (ctypes.c_int64 * 1)(value)


def _states(states: Sequence[Tensor]) -> tuple[int, ...]:
    """The number of bins, and the addresses of the tensors of a tally."""
    counts, sums, gap_histogram, bin_counts, bin_sums = states
    _check(torch.int64, counts, gap_histogram, bin_counts)
    _check(torch.float64, sums, bin_sums)
    return bin_counts.shape[1], *(x.data_ptr() for x in states)


def _check(dtype: torch.dtype, *states: Tensor) -> None:
    """Raise unless the library can write into these states."""
    for state in states:
        if state.dtype is not dtype or not state.is_contiguous():
            raise TypeError(f"expected contiguous states in {dtype}, got {state.dtype} with strides {state.stride()}")


def _check_memory(failed: int) -> None:
    if failed:
        raise MemoryError("the native library got no memory")
