"""How logits are cut into blocks: rows of a program, classes of a block, and warps."""

from enum import IntEnum
from typing import Any

import torch

from ...core.precision import accumulator
from .views import Layout

# The longest row that stays in registers, by the dtype of the sums: 32 float32 or 8 float64 for each of 512 threads.
# Twice as many float64 do not fit, because exp needs registers too.
ON_CHIP_CLASSES = {torch.float32: 16384, torch.float64: 4096}
# How much of a row one thread takes, if the row fits easily.
THREAD_BYTES = {torch.float32: 64, torch.float64: 32}
# The block of a longer row, for the largest number of threads in a program: 8 float32 or 2 float64 for each, besides
# its sums.
BLOCK_CLASSES = {torch.float32: 4096, torch.float64: 1024}
MOST_WARPS = 16
# How much one program takes if rows are short: two warps, so that few sums need an exchange between warps.
PROGRAM_BYTES = 2**12
# The most that a thread loads at once.
VECTOR_BYTES = 16
# The least number of rows in a block if rows lie side by side: 128 bytes of float32 are read at once.
ACROSS = 32
# Few long rows are split into parts: the least classes of a part, and the most parts of a row, which one block holds.
# With fewer parts than the least, the launches for tops, sums and their joining take more time than the parts save.
PART_CLASSES, LEAST_PARTS, MOST_PARTS = 4096, 4, 128
# The block of rows that are read again for their spread, and its warps.
SPREAD_BLOCK, SPREAD_WARPS = 1024, 4


class Stage(IntEnum):
    """What a launch over long rows does: all, or one of the steps if several programs share a row."""

    WHOLE = 0
    TOPS = 1
    SUMS = 2
    JOIN = 3


def parts_of(programs: int, classes: int, processors: int) -> int:
    """How many programs share a long row: one, unless there are so few rows that most processors would be idle."""
    parts = processors // programs
    if parts < LEAST_PARTS or classes <= ON_CHIP_CLASSES[torch.float32]:
        return 1
    return min(parts, MOST_PARTS, -(-classes // PART_CLASSES))


def geometry(classes: int, dtype: torch.dtype, *, across: bool = False, heavy: bool = False) -> dict[str, Any]:
    """How logits of this dtype are cut: `height` rows per program that fit on chip, or a part of a row; and warps.

    `width` is the number of classes in a block. For a longer row, `group` is the number of logits in one vector. If
    rows lie `across`, a block has at least as many rows as the memory delivers at once. In a `heavy` kernel each class
    needs many registers, and a thread takes half as many classes.
    """
    wide = accumulator(dtype)
    width = 1 << (classes - 1).bit_length()
    if width * (1 + (heavy or across)) > ON_CHIP_CLASSES[wide]:  # addresses of rows that lie across need registers too
        block = BLOCK_CLASSES[wide] // (1 + heavy)
        return {"group": VECTOR_BYTES // dtype.itemsize, "width": block, "num_warps": MOST_WARPS}
    height = max(1, PROGRAM_BYTES // (width * wide.itemsize))
    if across:
        height = max(height, min(ACROSS, ON_CHIP_CLASSES[wide] // (width * (1 + heavy))))
    warps = (1 + heavy) * height * width * wide.itemsize // (32 * THREAD_BYTES[wide])
    return {"height": height, "width": width, "num_warps": min(MOST_WARPS, warps)}


def spread_geometry(layout: Layout) -> dict[str, int]:
    """The same for rows that are read again for their spread."""
    width = min(SPREAD_BLOCK, 1 << (layout.classes - 1).bit_length())
    if layout.across:
        width = min(width, SPREAD_BLOCK // ACROSS)
    return {"height": SPREAD_BLOCK // width, "width": width, "num_warps": SPREAD_WARPS}
