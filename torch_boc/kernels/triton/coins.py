"""Loss, concentration and free gap of each row as an element-wise Triton kernel; the formulas are in `core/`.

This module needs Triton, and is imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

LEAST_ROOM = tl.constexpr(4 * 2.0**-52)


@triton.jit
def coins_of_sums(narrow, square, weight, placed, rivals):
    """Loss, concentration and free gap of each row from its sums; the loss is in the dtype of the odds, `narrow`.

    Without `weight`, concentration and free gap are 0, as they are for two classes. NaN stays NaN.
    """
    wide = narrow.to(tl.float64)
    others = rivals.to(tl.float64)
    # One rival: its loss is 1 - confidence to the last bit, so that the gap is 0.
    lost = (narrow - square.to(narrow.dtype)) / others.to(narrow.dtype)
    lost = tl.where(rivals == 1, narrow / (1.0 + narrow), lost)
    share, free = wide * 0.0, wide * 0.0
    if weight is not None:
        lead = (wide > others * 0.5).to(tl.float64)  # 1 for flat rows
        base, sign = 1.0 + lead, 1.0 - 2.0 * lead
        whole = tl.floor(weight)
        rest = weight - whole
        even = weight * weight / (others * base + sign * weight)
        room = whole / (base + sign) + rest * rest / (base + sign * rest) - even
        empty = room <= LEAST_ROOM * even  # False for NaN, which stays NaN
        part = (placed - even) / tl.where(empty, 1.0, room)
        part = tl.where(part < 0.0, 0.0, tl.where(part > 1.0, 1.0, part))
        part = tl.where(empty, 0.0, part)
        share = tl.where(rivals == 1, share, part)
        free = tl.where(rivals == 1, free, part * room * ((1.0 - 0.75 * lead) / others))
    return lost, share, free


# Triton would make a constant of `rivals` if it is 1, for two classes, and a constant cannot be converted.
@triton.jit(do_not_specialize=["size", "rivals"])
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
    lost, share, free = coins_of_sums(narrow, square, weight, placed, rivals)
    tl.store(loss + place, lost, mask=inside)
    tl.store(concentration + place, share.to(narrow.dtype), mask=inside)
    tl.store(free_gap + place, free.to(narrow.dtype), mask=inside)
