"""Work on a large tensor piece by piece, so that temporary memory is bounded and stays in cache."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

# Elements of one piece. A CPU piece of 2 MB per thread is large enough to hide the cost of starting each operation and
# small enough for the last-level cache; an accelerator wants few launches, and 64 MB is small beside its memory.
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

    An element counts `weight` times. The tensors share all axes but the last, which is never split; pieces are views,
    whatever the strides. Under torch.compile the compiler fuses the whole, so nothing is split.
    """
    axis, pieces = _cut(tensors, limit, weight)
    if axis is None:
        return function(*tensors)
    parts = [blockwise(function, *piece, limit=limit, weight=weight) for piece in pieces]
    return tuple(torch.cat(part, axis) for part in zip(*parts, strict=True))


def fill_blockwise(out: Tensor, function: Callable[..., Tensor], *tensors: Tensor, limit: int | None = None) -> Tensor:
    """`out` filled with `function(*tensors)` piece by piece, for a result that is too large to have twice."""
    axis, pieces = _cut((out, *tensors), limit)
    if axis is None:
        return out.copy_(function(*tensors))
    for piece in pieces:
        fill_blockwise(piece[0], function, *piece[1:], limit=limit)
    return out


def _cut(
    tensors: tuple[Tensor, ...], limit: int | None, weight: int = 1
) -> tuple[int | None, Iterable[tuple[Tensor, ...]]]:
    """The axis to cut the tensors along and their pieces, or None where the first is small enough as it is."""
    if torch.compiler.is_compiling():
        return None, ()
    lead = tensors[0]
    limit = max(1, (block_elements(lead.device) if limit is None else limit) // weight)
    axis = next((i for i, size in enumerate(lead.shape[:-1]) if size > 1), None)
    if axis is None or lead.numel() <= limit:
        return None, ()
    size = max(1, lead.shape[axis] * limit // lead.numel())
    return axis, zip(*(x.split(size, axis) for x in tensors), strict=True)
