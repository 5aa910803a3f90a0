"""How a given class stands among the others of its row; `core/standing.py` has the formulas.

One program takes a row, or a part of it if there are few long rows. This module needs Triton, and is imported when the
first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

from .addresses import NUMBERS, along, start_of
from .exponentials import odds_and_losses


@triton.jit(do_not_specialize=[*NUMBERS, "parts"])
def standing(
    logits, index, lost, ahead, rows, classes, inner, jump, stride, step, parts,
    bits: tl.constexpr, dtype: tl.constexpr, fast: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """Each program writes the sums of its part: `lost` and `ahead` have a column for each part."""
    program = tl.program_id(0)
    row, part = (program // parts).to(tl.int64), program % parts
    begin = logits + start_of(row, rows, inner, jump, stride, bits)
    given = tl.load(index + row)
    place = tl.minimum(tl.maximum(given, 0), classes - 1).to(tl.int32)
    own = tl.load(begin + along(place, step, 0)).to(dtype)
    size = tl.cdiv(tl.cdiv(classes, width), parts) * width
    low = part * size
    sums, counts = tl.zeros([width], dtype), tl.zeros([width], tl.int32)
    for start in range(low, tl.minimum(low + size, classes), width):
        column = start + tl.arange(0, width)
        inside = column < classes
        above = tl.load(begin + along(column, step, 0), mask=inside, other=-float("inf")).to(dtype) - own
        wins = above > 0.0
        _, loses, _ = odds_and_losses(tl.where(wins, -above, above), fast)
        sums += tl.where(inside & (column != place), tl.where(wins, 1.0 - loses, loses), 0.0)
        counts += (inside & wins).to(tl.int32)
    tl.store(lost + row * parts + part, tl.sum(sums, 0).to(tl.float64))
    tl.store(ahead + row * parts + part, tl.sum(counts, 0).to(tl.int64))
