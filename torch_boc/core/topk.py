"""The largest logits of each row. If several are the largest, every path takes the first, as torch.argmax on a CPU."""

import torch
from torch import Tensor

from .dtypes import accumulation_dtype

# From this many classes on, finding the top in two steps is faster on a CPU than torch.max, which does not vectorise
# the search for the index.
TWO_STEP_CLASSES = 512
# The same for the k largest and torch.topk.
TWO_STEP_TOP_K = 2048
# The largest size of a chunk. If a size above half of this divides the number of classes, that size is taken.
CHUNK = 64


def find_top(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Index and value of the largest logit, and every logit's distance below it, in the accumulator's dtype."""
    z = logits.to(accumulation_dtype(logits.dtype))
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


def find_top_k(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest values of each row and their places, the largest first; which of equal ones come is not specified.

    >>> find_top_k(torch.tensor([[1.0, 4.0, 2.0]]), 2)
    (tensor([[4., 2.]]), tensor([[1, 2]]))
    """
    classes = logits.shape[-1]
    many = classes >= TWO_STEP_TOP_K and k <= classes // CHUNK
    if not many or logits.device.type != "cpu" or torch.compiler.is_compiling():
        values, places = logits.topk(k, -1)
        return values, places
    # The k largest logits are in the k chunks with the largest maxima, or in the rest that fills no chunk.
    chunks = logits.unfold(-1, CHUNK, CHUNK).amax(-1).topk(k, -1, sorted=False).indices
    inside = torch.arange(CHUNK, device=logits.device)
    candidates = torch.add(inside, chunks.unsqueeze(-1), alpha=CHUNK).flatten(-2)
    if rest := classes % CHUNK:
        last = torch.arange(classes - rest, classes, device=logits.device)
        candidates = torch.cat([candidates, last.expand(*candidates.shape[:-1], rest)], -1)
    values, places = logits.gather(-1, candidates).topk(k, -1)
    return values, candidates.gather(-1, places)
