"""The launch of the kernel in `standing.py`."""

import torch
from torch import Tensor

from .cards import processors
from .geometry import parts_of
from .launch import constants, launch, load
from .views import layout_of, readable

BLOCK, WARPS = 1024, 4


def standing(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """`core.standing.standing` in one launch; the parts of split rows are added up by one more operation each."""
    shape = logits.shape[:-1]
    logits = readable(logits)
    layout = layout_of(logits)
    parts = parts_of(max(1, layout.rows), layout.classes, processors(logits.device))
    lost = logits.new_zeros((layout.rows, parts), dtype=torch.float64)
    ahead = logits.new_zeros((layout.rows, parts), dtype=torch.int64)
    if layout.rows:
        width = min(BLOCK, 1 << (layout.classes - 1).bit_length())
        options = {"width": width, "num_warps": WARPS, **constants(logits, layout)}
        kernel, grid = load("standing").standing, (layout.rows * parts,)
        launch(kernel, grid, logits, logits, index.contiguous(), lost, ahead, *layout.numbers, parts, **options)
    return lost.sum(-1).reshape(shape), ahead.sum(-1).reshape(shape)
