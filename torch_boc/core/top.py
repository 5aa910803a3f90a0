"""The top of each row: of several equal ones the first, as torch.argmax finds it on the CPU, on every path."""

import torch
from torch import Tensor

from .precision import accumulator

# From here on, finding the top in two steps beats torch.max on CPU, which does not vectorise the search for the index.
TWO_STEP_CLASSES = 512
# The most logits of a chunk; a number that divides the classes is taken if there is one, down to the half of this.
CHUNK = 64


def find_top(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Index and value of the largest logit, and every logit's distance below it, in the accumulator's dtype."""
    z = logits.to(accumulator(logits.dtype))
    classes = z.shape[-1]
    if torch.compiler.is_compiling() and classes <= 2**24:  # up to here float32 counts classes exactly
        top = z.amax(-1, keepdim=True)
        places = torch.arange(classes, dtype=z.dtype, device=z.device)
        # The first top, or the first NaN, as torch.argmax: no row is without either.
        prediction = torch.where((z == top) | z.isnan(), places, classes - 1.0).amin(-1, keepdim=True).long()
    elif z.device.type == "cpu" and classes >= TWO_STEP_CLASSES:
        top, prediction = _max_in_two_steps(z)
    else:
        top, prediction = z.max(-1, keepdim=True)
    return prediction, top, z - top


def _max_in_two_steps(z: Tensor) -> tuple[Tensor, Tensor]:
    """The first of several tops: the first chunk of logits with the largest top, and the first top in it."""
    classes = z.shape[-1]
    chunk = next((size for size in range(CHUNK, CHUNK // 2, -1) if classes % size == 0), CHUNK)
    tops, rest = z.unfold(-1, chunk, chunk).amax(-1), classes % chunk
    if rest:
        tops = torch.cat([tops, z[..., -rest:].amax(-1, keepdim=True)], -1)
    first, step = tops.argmax(-1, keepdim=True), chunk
    if rest:  # is looked for in the last logits: those of them before it hold no top, for else theirs was the first
        first, step = (first * chunk).clamp_max(classes - chunk), 1
    candidates = torch.add(torch.arange(chunk, device=z.device), first, alpha=step)
    top, place = z.gather(-1, candidates).max(-1, keepdim=True)
    return top, torch.add(place, first, alpha=step)
