"""How the Triton kernels add up over many rows, with the same result to the last bit in every run.

Counts are whole numbers, whose sum is the same in any order: each program adds its counts directly to the states. Sums
of floats go to a table first, with a column for each program, and `collect` adds up its rows in a fixed order.
This module needs Triton, and is imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl


@triton.jit
def sum_in_bins(hot, value):
    """The sum of `value` in each bin."""
    return tl.sum(tl.where(hot, value[:, None], 0.0), 0)


@triton.jit
def count_in_bins(hot, which):
    return tl.sum((hot & which[:, None]).to(tl.int32), 0)


@triton.jit
def add_count(counts, number):
    """Add to one count of the states."""
    tl.atomic_add(counts, tl.sum(number, 0).to(tl.int64), sem="relaxed")


@triton.jit
def add_counts(counts, numbers, mask):
    """Add to several counts of the states."""
    tl.atomic_add(counts, numbers.to(tl.int64), mask=mask & (numbers != 0), sem="relaxed")


@triton.jit(do_not_specialize=["first_size", "programs"])
def collect(table, first, second, first_size, programs, block: tl.constexpr):
    """Add the sums of all programs, one row of `table` to one number of the states `first` and then `second`."""
    row = tl.program_id(0)
    lane = tl.arange(0, block)
    totals = tl.zeros([block], tl.float64)
    for start in range(0, programs, block):
        place = start + lane
        totals += tl.load(table + row.to(tl.int64) * programs + place, mask=place < programs, other=0.0)
    total = tl.sum(totals, 0)
    if row < first_size:
        tl.store(first + row, tl.load(first + row) + total)
    elif second is not None:
        tl.store(second + row - first_size, tl.load(second + row - first_size) + total)
