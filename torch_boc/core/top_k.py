"""The k largest logits of each row."""

import torch
from torch import Tensor

# From this many classes on, a search in two steps is faster on a CPU than torch.topk.
TWO_STEP_CLASSES = 2048
CHUNK = 64


def find_top_k(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest values of each row and their places, the largest first; which of equal ones come is not specified.

    >>> find_top_k(torch.tensor([[1.0, 4.0, 2.0]]), 2)
    (tensor([[4., 2.]]), tensor([[1, 2]]))
    """
    classes = logits.shape[-1]
    wide = classes >= TWO_STEP_CLASSES and k <= classes // CHUNK
    if wide and logits.device.type == "cpu" and not torch.compiler.is_compiling():
        return _in_two_steps(logits, k)
    values, places = logits.topk(k, -1)
    return values, places


def _in_two_steps(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest logits are in the k chunks with the largest maxima, or in the rest that fills no chunk."""
    classes = logits.shape[-1]
    chunks = logits.unfold(-1, CHUNK, CHUNK).amax(-1).topk(k, -1, sorted=False).indices
    inside = torch.arange(CHUNK, device=logits.device)
    candidates = torch.add(inside, chunks.unsqueeze(-1), alpha=CHUNK).flatten(-2)
    if rest := classes % CHUNK:
        last = torch.arange(classes - rest, classes, device=logits.device)
        candidates = torch.cat([candidates, last.expand(*candidates.shape[:-1], rest)], -1)
    values, places = logits.gather(-1, candidates).topk(k, -1)
    return values, candidates.gather(-1, places)
