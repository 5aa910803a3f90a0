"""Work on a large tensor piece by piece, so that temporary memory is bounded and stays in cache."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

# How many elements one piece has. On a CPU, 2 MB per thread are enough to hide the cost of starting each operation, and
# still fit in the last-level cache. An accelerator needs few launches, and 64 MB are a small part of its memory.
CPU_ELEMENTS_PER_THREAD = 2**19
ACCELERATOR_ELEMENTS = 2**24


def block_elements(device: torch.device) -> int:
    """How many elements one piece may have on `device`."""
    if device.type == "cpu":
        return CPU_ELEMENTS_PER_THREAD * torch.get_num_threads()
    return ACCELERATOR_ELEMENTS


def blockwise(
    function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor, limit: int | None = None, weight: int = 1
) -> tuple[Tensor, ...]:
    """`function(*tensors)`, computed on pieces of at most `limit` elements and joined again.

    Each element counts `weight` times. The tensors have the same axes except the last one, which is never split. The
    pieces are views, for any strides. Under torch.compile nothing is split, because the compiler fuses everything.
    """
    axis, pieces = _cut(tensors, limit, weight)
    if axis is None:
        return function(*tensors)
    parts = [blockwise(function, *piece, limit=limit, weight=weight) for piece in pieces]
    return tuple(torch.cat(part, axis) for part in zip(*parts, strict=True))


def fill_blockwise(out: Tensor, function: Callable[..., Tensor], *tensors: Tensor, limit: int | None = None) -> Tensor:
    """Fill `out` with `function(*tensors)` piece by piece, so that a large result is in memory only once."""
    axis, pieces = _cut((out, *tensors), limit)
    if axis is None:
        return out.copy_(function(*tensors))
    for piece in pieces:
        fill_blockwise(piece[0], function, *piece[1:], limit=limit)
    return out


def _cut(
    tensors: tuple[Tensor, ...], limit: int | None, weight: int = 1
) -> tuple[int | None, Iterable[tuple[Tensor, ...]]]:
    """The axis along which the tensors are cut, and their pieces. The axis is None if nothing is cut."""
    if torch.compiler.is_compiling():
        return None, ()
    lead = tensors[0]
    limit = max(1, (block_elements(lead.device) if limit is None else limit) // weight)
    axis = next((i for i, size in enumerate(lead.shape[:-1]) if size > 1), None)
    if axis is None or lead.numel() <= limit:
        return None, ()
    size = max(1, lead.shape[axis] * limit // lead.numel())
    return axis, zip(*(x.split(size, axis) for x in tensors), strict=True)
