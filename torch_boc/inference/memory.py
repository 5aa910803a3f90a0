"""Go on with smaller pieces when a device runs out of memory."""

import gc
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from .batches import Batch

MESSAGES = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory", "alloc_failed")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether `error` is about memory: of a GPU, of the CPU, or of a library on the GPU."""
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error).lower() for text in MESSAGES)


class Pieces:
    """Calls `function` on a batch, in pieces as large as the memory allows, and joins their columns.

    A piece that does not fit is halved; the size that fits holds for the batches that follow. A single sample that does
    not fit is an error.

    Attributes:
        limit: the most samples of one piece, None until memory ran out.
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
        """The columns, or None where the piece does not fit; then the limit is half of it."""
        try:
            return self._function(piece)
        except RuntimeError as error:
            if piece.size == 1 or not is_out_of_memory(error):
                raise
        # Outside of the handler, where the error no longer holds the tensors of the failed call.
        self.limit = piece.size // 2
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        warnings.warn(f"{piece.size} samples do not fit in memory; going on with {self.limit} at a time", stacklevel=2)
        return None
