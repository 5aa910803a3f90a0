"""Loss and concentration of each row as an element-wise Triton kernel; `functional/bounds.py` says what they are.

This module needs Triton, and is imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

LEAST_ROOM = tl.constexpr(4 * 2.0**-52)


@triton.jit
def coins(odds, squares, loss, concentration, size, rivals, block: tl.constexpr):
    """`block` rows per program, from odds and squares to loss and concentration."""
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = place < size
    narrow = tl.load(odds + place, mask=inside, other=1.0)
    square = tl.load(squares + place, mask=inside, other=0.0)
    against, others = narrow.to(tl.float64), rivals.to(tl.float64)
    whole = tl.floor(against)
    rest = against - whole
    even = against * against / (others + against)
    room = whole * 0.5 + rest * rest / (1.0 + rest) - even
    empty = room <= LEAST_ROOM * even  # not so for NaN, which stays what it is
    share = (square - even) / tl.where(empty, 1.0, room)
    share = tl.where(share < 0.0, 0.0, tl.where(share > 1.0, 1.0, share))
    tl.store(concentration + place, tl.where(empty, 0.0, share).to(narrow.dtype), mask=inside)
    lost = narrow - square.to(narrow.dtype)
    tl.store(loss + place, lost / others.to(narrow.dtype), mask=inside)
