"""Launches of the Triton kernels that make tallies, columns and histograms of a batch of logits.

Each function reads the logits once and adds to its states in place: `tally` in four launches, `columns` and
`count_scores` in three; if there are few rows of very many classes, in three more. The arguments are those of the
functions of the same names in `cpu/calls.py`. Nothing is read back, and all shapes follow from those of the arguments,
so that a CUDA graph can hold it.
"""

import struct
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .cards import fraction_steps
from .launch import launch, load
from .launch_columns import columns, count_scores
from .launch_sums import BLOCK, OPTIONS, check_states, flat, row_sums
from .views import layout_of, readable

__all__ = ["columns", "count_scores", "gap_tally", "tally", "tally_evidence"]

# The most bins, or classes, whose sums a program keeps in registers.
MOST_WIDTH = 16
# The most programs for a batch, each with a column in the table of sums, and the most numbers in this table.
MOST_PROGRAMS, MOST_SUMS = 2048, 2**22


def tally(
    logits: Tensor,
    target: Tensor | None,
    ignore_index: int | None,
    trials: int,
    alpha: float,
    states: Sequence[Tensor],
) -> None:
    """Add the tally of a batch to its states: counts, sums, gap_histogram, bin_counts and bin_sums.

    Args:
        logits: (..., C).
        target: (...) in int64, or None.
        ignore_index: samples with this target do not count.
        trials: the number of coin flips of the p-value.
        alpha: the level below which p-values are counted.
        states: the tensors of a `functional.tally.Tally`.
    """
    if not logits.numel():
        return
    logits, target = readable(logits), flat(target)
    found, layout = row_sums(logits, spread=True), layout_of(logits)
    rows = [found.prediction, found.odds, found.squares, found.mass, found.mass_squares, found.top, logits]
    ignored = None if target is None else ignore_index
    how = (layout.rows, layout.classes - 1, layout.numbers[2:], ignored, trials, alpha)
    _tally([*rows, target, None, None], how, states, given=False)


def tally_evidence(
    coins: Sequence[Tensor],
    target: Tensor | None,
    distance: Tensor | None,
    counted: Tensor | None,
    num_classes: int,
    trials: int,
    alpha: float,
    states: Sequence[Tensor],
) -> None:
    """`tally` of samples whose logits were read before, in two launches.

    Args:
        coins: prediction, odds, loss, concentration and free gap, of any one shape.
        target: of the same shape in int64, or None.
        distance: how far the target's logit is below the top, if there are targets.
        counted: which samples count, or None if all do.
        num_classes: C.
        trials: the number of coin flips of the p-value.
        alpha: the level below which p-values are counted.
        states: the tensors of a `functional.tally.Tally`.
    """
    numbers = [x.reshape(-1).contiguous() for x in coins]
    if numbers[0].numel():
        labels = [None, None] if distance is None else [flat(target), flat(distance)]
        how = (len(numbers[0]), num_classes - 1, (None,) * 4, None, trials, alpha)
        _tally([*numbers, None, None, *labels, flat(counted)], how, states, given=True)


def _tally(rows: list[Tensor | None], how: tuple[Any, ...], states: Sequence[Tensor], *, given: bool) -> None:
    check_states(states)
    counts, sums, gap_histogram, bin_counts, bin_sums = states
    size, rivals, strides, ignore_index, trials, alpha = how
    bins = bin_sums.shape[1]
    numbers = (size, rivals, *strides, ignore_index, trials, fraction_steps(counts, trials), _bits(alpha), bins)
    programs, turns = _programs(size, sums.numel() + bin_sums.numel())
    table = sums.new_empty(sums.numel() + bin_sums.numel(), programs, dtype=torch.float64)
    width = _width(bins)
    arguments = (*rows, counts, gap_histogram, bin_counts, table, *numbers, turns)
    launch(load("tally").tally, (programs, -(-bins // width)), counts, *arguments, given=given, width=width, **OPTIONS)
    _collect(table, sums, bin_sums)


def gap_tally(
    logits: Tensor, target: Tensor | None, ignore_index: int | None, part: str, states: Sequence[Tensor]
) -> None:
    """Add to the states gap, samples and invalid what `functional.tally.gap_tally` gives, in at most four launches.

    Args:
        logits: (..., C).
        target: (...) in int64, or None.
        ignore_index: samples with this target do not count.
        part: "total", "forced" or "free".
        states: gap and samples have C elements, by predicted class, or 1 for all together; invalid has one.
    """
    if not logits.numel():
        return
    check_states(states)
    gap, samples, invalid = states
    logits, target = readable(logits), flat(target)
    found, layout = row_sums(logits, spread=part == "free"), layout_of(logits)
    rows = (found.prediction, found.odds, found.squares, found.mass, found.mass_squares, target)
    programs, turns = _programs(layout.rows, gap.numel())
    table = gap.new_empty(gap.numel(), programs, dtype=torch.float64)
    width = _width(gap.numel())
    ignored = None if target is None else ignore_index
    numbers = (layout.rows, layout.classes - 1, ignored, gap.numel(), turns)
    grid = (programs, -(-gap.numel() // width))
    arguments = (*rows, samples, invalid, table, *numbers)
    launch(load("gaps").gap_tally, grid, gap, *arguments, part=part, width=width, **OPTIONS)
    _collect(table, gap, None)


def _collect(table: Tensor, first: Tensor, second: Tensor | None) -> None:
    rows, programs = table.shape
    arguments = (table, first, second, first.numel(), programs)
    launch(load("sums").collect, (rows,), table, *arguments, **OPTIONS)


def _programs(size: int, sums: int) -> tuple[int, int]:
    """How many programs, and how many blocks each of them takes; they follow from the shapes alone."""
    blocks = -(-size // BLOCK)
    most = max(1, min(MOST_PROGRAMS, MOST_SUMS // sums))
    turns = -(-blocks // most)
    return -(-blocks // turns), turns


def _width(bins: int) -> int:
    return min(MOST_WIDTH, 1 << (bins - 1).bit_length())


def _bits(alpha: float) -> int:
    """A float64 as the integer with the same bits: Triton would round a float to float32."""
    return int(struct.unpack("<q", struct.pack("<d", alpha))[0])
