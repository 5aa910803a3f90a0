"""Where the logits of a row are, for all kernels; `views.py` says what the numbers mean.

This module needs Triton, and is imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

# These numbers differ from batch to batch. The code depends only on which of them are None, and on the constant `bits`.
NUMBERS = ["rows", "classes", "inner", "jump", "stride", "step"]


@triton.jit
def multiple(x, bits: tl.constexpr):
    """x, which 2^bits divides: the compiler sees it, and makes vectors of as many elements."""
    if bits > 0:
        x = (x >> bits) << bits
    return x


@triton.jit
def start_of(row, rows, inner, jump, stride, bits: tl.constexpr):
    """Where each row begins, in elements; `row` is int64."""
    if inner is None:
        start = row
        if stride is not None:
            start = row * multiple(stride, bits)
    else:
        place = row.to(rows.dtype)  # int32 for fewer than 2^31 rows, whose division is fast
        if stride is None:
            side = multiple(inner, bits)
            start = (place // side).to(tl.int64) * multiple(jump, bits) + (place % side)
        else:
            outer = (place // inner).to(tl.int64) * multiple(jump, bits)
            start = outer + (place % inner).to(tl.int64) * multiple(stride, bits)
    return start


@triton.jit
def along(column, step, bits: tl.constexpr):
    """How far each class is from the start of its row, in elements."""
    if step is not None:
        column = column.to(tl.int64) * multiple(step, bits)
    return column


@triton.jit
def is_row(row, rows, stride, bits: tl.constexpr):
    """Which rows there are; if they lie side by side, `bits` is about them, otherwise about the classes."""
    if stride is None:
        rows = multiple(rows, bits)
    return row < rows


@triton.jit
def count_of(classes, stride, bits: tl.constexpr):
    """The number of classes, seen as a multiple if it is one."""
    if stride is not None:
        classes = multiple(classes, bits)
    return classes
