"""The sum of the gap alone as a Triton kernel, of all rows or by predicted class, laid out as in `tally.py`.

This module needs Triton, and is imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

from .quantities import counted_rows, forced_gap_of, gap_of, read_coins, settle
from .sums import add_count, add_counts, count_in_bins, sum_in_bins


@triton.jit(do_not_specialize=["target", "size", "rivals", "ignore_index", "classes", "turns"])
def gap_tally(
    prediction, odds, second, third, fourth, target, samples, invalid, table,
    size, rivals, ignore_index, classes, turns,
    part: tl.constexpr, block: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """The gap, or a part of it, by predicted class; `classes` is 1 where all rows are one sum."""
    program, programs, first = tl.program_id(0), tl.num_programs(0), tl.program_id(1) == 0
    column = tl.program_id(1) * width + tl.arange(0, width)
    bad = tl.zeros([block], tl.int32)
    numbers, gaps = tl.zeros([width], tl.int32), tl.zeros([width], tl.float64)
    for turn in range(turns):
        place = (program * turns + turn).to(tl.int64) * block + tl.arange(0, block)
        inside = place < size
        counting = counted_rows(target, None, ignore_index, place, inside)
        against, lost, share, free = read_coins(odds, second, third, fourth, place, inside, rivals, False)
        against, lost, share, free, valid, invalid_rows = settle(against, lost, share, free, counting)
        if part == "total":
            gap = tl.maximum(gap_of(against, lost), 0.0)
        elif part == "forced":
            gap = forced_gap_of(against, rivals)
        else:
            gap = tl.maximum(free, 0.0)
        winner = tl.where(classes == 1, 0, tl.load(prediction + place, mask=inside, other=0))
        hot = winner.to(tl.int32)[:, None] == column[None, :]
        numbers += count_in_bins(hot, valid)
        gaps += sum_in_bins(hot, tl.where(valid, gap, 0.0))
        bad += invalid_rows.to(tl.int32)
    real = column < classes
    add_counts(samples + column, numbers, real)
    tl.store(table + column.to(tl.int64) * programs + program, gaps, mask=real)
    if first:
        add_count(invalid, bad)
