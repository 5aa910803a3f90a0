"""The top of each row. If several logits are equal, every path takes the first, as torch.argmax does on the CPU."""

import torch
from torch import Tensor

from .precision import accumulator

# From this many classes on, finding the top in two steps is faster on a CPU than torch.max, which does not vectorise
# the search for the index.
TWO_STEP_CLASSES = 512
# The largest size of a chunk. If a size above half of this divides the number of classes, that size is taken.
CHUNK = 64


def find_top(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Index and value of the largest logit, and every logit's distance below it, in the accumulator's dtype."""
    z = logits.to(accumulator(logits.dtype))
    classes = z.shape[-1]
    if torch.compiler.is_compiling() and classes <= 2**24:  # up to here float32 counts classes exactly
        nan = z.isnan()
        # The maximum of a row with a NaN is NaN in torch, but a number in some programs that run exported models.
        top = torch.where(nan.any(-1, keepdim=True), torch.nan, z.amax(-1, keepdim=True))
        places = torch.arange(classes, dtype=z.dtype, device=z.device)
        # The first top or the first NaN, as torch.argmax finds it. Every row has at least one of them.
        prediction = torch.where((z == top) | nan, places, classes - 1.0).amin(-1, keepdim=True).long()
    elif z.device.type == "cpu" and classes >= TWO_STEP_CLASSES:
        top, prediction = _max_in_two_steps(z)
    else:
        top, prediction = z.max(-1, keepdim=True)
    return prediction, top, z - top


def _max_in_two_steps(z: Tensor) -> tuple[Tensor, Tensor]:
    """The top and its index: find the first chunk with the largest logit, then the first such logit in it."""
    classes = z.shape[-1]
    chunk = next((size for size in range(CHUNK, CHUNK // 2, -1) if classes % size == 0), CHUNK)
    tops, rest = z.unfold(-1, chunk, chunk).amax(-1), classes % chunk
    if rest:
        tops = torch.cat([tops, z[..., -rest:].amax(-1, keepdim=True)], -1)
    first, step = tops.argmax(-1, keepdim=True), chunk
    if rest:  # a short last chunk also takes logits before it: they are no tops, otherwise their chunk would be first
        first, step = (first * chunk).clamp_max(classes - chunk), 1
    candidates = torch.add(torch.arange(chunk, device=z.device), first, alpha=step)
    top, place = z.gather(-1, candidates).max(-1, keepdim=True)
    return top, torch.add(place, first, alpha=step)
