"""What all Triton kernels share: where the logits of a row are, odds and losses of each class, the top of a row.

With the constant `fast`, float32 uses instructions of NVIDIA's GPUs that have no name in Triton. All are exact to one
or two units in the last place for the arguments that they get here. This module needs Triton, and is imported when the
first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import torch
import triton
import triton.language as tl

DTYPES = {torch.float32: tl.float32, torch.float64: tl.float64}
# These numbers differ from batch to batch. The code depends only on which of them are None, and on the constant `bits`.
NUMBERS = ["rows", "classes", "inner", "jump", "stride", "step"]
UP = tl.constexpr(2.0**100)
DOWN = tl.constexpr(2.0**-100)
# A number that is added to this is rounded to an integer. The low bits of the sum are this integer plus 100.
ROUND = tl.constexpr(1.5 * 2.0**23 + 100.0)
LOG2_E = tl.constexpr(1.44269502162933349609375)  # log2(e) in float32, and the rest
LOG2_E_REST = tl.constexpr(1.92596299112661746887e-8)
# A vector may begin at every multiple of this many logits.
ALIGNED = tl.constexpr(8)


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


@triton.jit
def _exp2(x, fast: tl.constexpr):
    """2^x for |x| <= 1/2: what Triton has for it takes care of denormals as well, at three instructions more."""
    if fast:
        y = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        y = tl.exp2(x)
    return y


@triton.jit
def _share(odds, fast: tl.constexpr):
    """The loss u / (1 + u) for 0 <= u <= 1."""
    if fast:
        one = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [1.0 + odds], dtype=tl.float32, is_pure=True, pack=1
        )
        share = odds * one
    else:
        share = odds / (1.0 + odds)
    return share


@triton.jit
def odds_and_losses(below, fast: tl.constexpr):
    """2^100 u and u / (1 + u) of each class; and `below`, made finite.

    In float32, exp(x) = 2^n 2^f with x log2(e) = n + f: what the GPU has for exp rounds x log2(e), which can cost 3e-6
    at u = 1e-30. The whole number n goes to the exponent, where 100 more are for the scale.
    """
    if below.dtype == tl.float64:
        finite = tl.maximum(below, -1e4)
        scaled = tl.exp(finite) * UP
    else:
        finite = tl.maximum(below, -156.0)  # u = 2^-225, nearly the smallest whose scaled exponent float32 holds
        shifted = finite * LOG2_E + ROUND
        n = shifted - ROUND
        if fast:  # a fused multiply-add has all digits of the product
            high, low = tl.full(finite.shape, LOG2_E, tl.float32), tl.full(finite.shape, LOG2_E_REST, tl.float32)
            fraction = tl.fma(finite, low, tl.fma(finite, high, -n))
        else:  # Cody and Waite: the first factor is so short that its product with n is exact
            fraction = ((finite - n * 0.693359375) + n * 2.12194440e-4) * LOG2_E
        bits = _exp2(fraction, fast).to(tl.int32, bitcast=True) + (shifted.to(tl.int32, bitcast=True) << 23)
        scaled = bits.to(tl.float32, bitcast=True)
    return scaled, _share(scaled * DOWN, fast), finite


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def top_of(z, axis: tl.constexpr, fast: tl.constexpr):
    """The largest; where there is a NaN, NaN if `fast`, otherwise +inf. Both stand for an undefined row."""
    return tl.reduce(z, axis, _larger) if fast else tl.max(tl.where(z == z, z, float("inf")), axis)


@triton.jit
def key_of(z, best, column, classes):
    """The column of a top; of a NaN, which comes before all tops, the column minus `classes`; otherwise `classes`."""
    return tl.where(z != z, column - classes, tl.where(z == best, column, classes))


@triton.jit
def lead_over(below):
    """1 - u of each class, by the series of exp near 1: x (1 - x/2 (1 - x/3 (1 - ...))) with x = -below."""
    x = -below
    series = 1.0 - x * (1.0 / 13.0)
    for i in tl.static_range(12, 1, -1):
        series = 1.0 - series * x * (1.0 / i)
    return tl.where(x < 0.25, x * series, 1.0 - tl.exp(below))


@triton.jit
def log1p(x):
    """log(1 + x) of x > -1, with the digits that the rounding of 1 + x loses."""
    total = 1.0 + x
    return tl.log(total) - ((total - 1.0) - x) / total


@triton.jit
def aligned(begin, classes, step):
    """An aligned start at or before that of a row, and which places from there on, first and end, are of the row."""
    first = begin.to(tl.int32) * 0
    if step is None:
        first = (begin % ALIGNED).to(tl.int32)
        begin = begin // ALIGNED * ALIGNED
    return begin, first, first + classes


@triton.jit
def is_inside(start, first, end, but, width: tl.constexpr):
    """Which places of a block are of the row, and not `but`."""
    place = start + tl.arange(0, width)
    # Negative numbers are large without a sign: one comparison for both ends.
    return ((place - first).to(tl.uint32) < (end - first).to(tl.uint32)) & (place != but)


@triton.jit
def load_block(logits, start, first, end, but, step, dtype: tl.constexpr, width: tl.constexpr):
    """A block of a row from `start` on, without the place `but`: in vectors if it is whole, as all but three are."""
    pointers = logits + along(start + tl.arange(0, width), step, 0)
    if (start >= first) & (start + width <= end) & ((but < start) | (but >= start + width)):
        z = tl.load(pointers)
    else:
        z = tl.load(pointers, mask=is_inside(start, first, end, but, width), other=-float("inf"))
    return z.to(dtype)


@triton.jit
def find_top(
    logits, size, first, end, step, dtype: tl.constexpr, fast: tl.constexpr, group: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """The top of the first `size` classes, and its key: the place of the first such top, minus `end` for a NaN.

    Each `group`, a vector, has its top so far and the first block with it.
    """
    bests, starts = tl.full([width // group], -float("inf"), dtype), tl.zeros([width // group], tl.int32)
    for start in range(0, size, width):
        z = load_block(logits, start, first, end, -1, step, dtype, width)
        tops = top_of(tl.reshape(z, [width // group, group]), 1, fast)
        starts = tl.where(tops > bests, start, starts)
        bests = tl.maximum(bests, tops, propagate_nan=tl.PropagateNan.ALL)
    best = top_of(bests, 0, fast)
    start = tl.min(tl.where(bests == best, starts, end), 0)
    stop = start + 1
    if best - best != 0.0:  # the first NaN can be in any block
        start, stop = size * 0, size
    key = end
    for begin in range(start, stop, width):
        z = load_block(logits, begin, first, end, -1, step, dtype, width)
        column = begin + tl.arange(0, width)
        # Where the block has no class there is -inf, which is the top of a row that is all -inf.
        keys = tl.where(column >= first, key_of(z, best, column, end), end)
        key = tl.minimum(key, tl.min(keys, 0))
    return best, key
