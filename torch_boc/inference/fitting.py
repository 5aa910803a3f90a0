"""Smaller pieces of a batch when a device runs out of memory."""

import gc
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from ..data.atomic import mentions_memory
from .batches import Batch


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether `error` says that memory ran out: on the CPU, on a GPU, or in a library that runs on the GPU."""
    return isinstance(error, torch.OutOfMemoryError) or mentions_memory(error)


class FittingPieces:
    """Calls `function` on a batch, in pieces as large as the memory allows, and joins their columns.

    A piece that does not fit is halved. The size that fits is kept for the following batches. A single sample that does
    not fit is an error.

    Attributes:
        limit: the largest number of samples in a piece; None until memory has run out once.
    """

    def __init__(self, function: Callable[[Batch], dict[str, Tensor]]) -> None:
        self.limit: int | None = None
        self._function = function

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """The columns of all samples of the batch, in their order."""
        done, parts = 0, []
        while done < batch.size:
            stop = min(batch.size, done + (self.limit or batch.size))
            part = self._attempt(batch if stop - done == batch.size else batch.piece(done, stop))
            if part is not None:
                parts.append(part)
                done = stop
        if len(parts) == 1:
            return parts[0]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _attempt(self, piece: Batch) -> dict[str, Tensor] | None:
        """The columns, or None if the piece does not fit; the limit is then half of its size."""
        try:
            return self._function(piece)
        except RuntimeError as error:
            if piece.size == 1 or not is_out_of_memory(error):
                raise
        # Outside of the handler: inside, the error would still hold the tensors of the failed call.
        self.limit = piece.size // 2
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        warnings.warn(f"{piece.size} samples do not fit in memory; going on with {self.limit} at a time", stacklevel=2)
        return None
