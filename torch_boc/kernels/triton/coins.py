"""Loss, concentration and free gap of each row as an element-wise Triton kernel; the formulas are in `core/`.

This module needs Triton, and is imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

LEAST_ROOM = tl.constexpr(4 * 2.0**-52)


@triton.jit
def coins(
    odds, squares, mass, mass_squares, loss, concentration, free_gap, size, rivals, block: tl.constexpr
):  # fmt: skip
    """`block` rows per program, from the sums of each row to its loss, concentration and free gap."""
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = place < size
    narrow = tl.load(odds + place, mask=inside, other=1.0)
    square = tl.load(squares + place, mask=inside, other=0.0)
    weight = tl.load(mass + place, mask=inside, other=1.0)
    placed = tl.load(mass_squares + place, mask=inside, other=0.0)
    others = rivals.to(tl.float64)
    lead = (narrow.to(tl.float64) > others * 0.5).to(tl.float64)  # 1 for flat rows
    base, sign = 1.0 + lead, 1.0 - 2.0 * lead
    whole = tl.floor(weight)
    rest = weight - whole
    even = weight * weight / (others * base + sign * weight)
    room = whole / (base + sign) + rest * rest / (base + sign * rest) - even
    empty = room <= LEAST_ROOM * even  # False for NaN, which stays NaN
    share = (placed - even) / tl.where(empty, 1.0, room)
    share = tl.where(share < 0.0, 0.0, tl.where(share > 1.0, 1.0, share))
    share = tl.where(empty, 0.0, share)
    tl.store(concentration + place, share.to(narrow.dtype), mask=inside)
    tl.store(free_gap + place, (share * room * ((1.0 - 0.75 * lead) / others)).to(narrow.dtype), mask=inside)
    lost = narrow - square.to(narrow.dtype)
    tl.store(loss + place, lost / others.to(narrow.dtype), mask=inside)
