"""The device on which a model runs: its mode there, copies to it and from it, and pieces that fit in its memory.

On CUDA, the next batch is copied while the model runs on the current one: its tensors are put into pinned memory, and a
second stream copies them from there. The stream on which the model runs waits for the copy. The program does not wait.
"""

import gc
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..data.atomic import is_memory_error
from ..data.parquet import Column
from .batches import Batch


def device_of(model: nn.Module) -> torch.device:
    """The device of the first parameter or buffer."""
    tensor = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if tensor is None else tensor.device


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode within the block. Afterwards every module has its earlier mode again, frozen modules included."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        model.train(modes[0][1])  # a class may have a `train` of its own
        for module, training in modes:
            module.training = training


class Landing(NamedTuple):
    """Columns that are being copied to the CPU.

    Attributes:
        columns: on the CPU; what comes from a CUDA device may not be there yet.
        events: one for each CUDA device among the columns, which happens when all of its copies have arrived.
    """

    columns: dict[str, Column]
    events: dict[torch.device, Any]

    def wait(self) -> dict[str, Column]:
        """Wait for the copies, and return the columns, of which none is in pinned memory: users may keep many."""
        for event in self.events.values():
            event.synchronize()
        for name, x in self.columns.items() if self.events else ():
            self.columns[name] = x.clone() if isinstance(x, Tensor) else x
        return self.columns


def land(columns: Mapping[str, Column]) -> Landing:
    """Start the copy of the tensors to the CPU; from CUDA it goes into pinned memory."""
    landing = Landing(dict(columns), {})
    for name, x in columns.items():
        if isinstance(x, Tensor):
            landing.columns[name] = x.to("cpu", non_blocking=x.device.type == "cuda")
            if x.device.type == "cuda":  # the copy runs on the device's own current stream, wherever the model began
                landing.events[x.device] = torch.cuda.current_stream(x.device).record_event()
    return landing


def in_fitting_pieces(
    function: Callable[[Batch], dict[str, Tensor]], batch: Batch, limit: int | None
) -> tuple[dict[str, Tensor], int | None]:
    """Call `function` on a batch, in pieces as large as the memory allows, and join their columns.

    A piece that does not fit is halved. A single sample that does not fit is an error.

    Args:
        function: makes the columns of a piece.
        batch: the samples.
        limit: the largest number of samples in a piece; None if memory has not run out yet.

    Returns:
        The columns of all samples in their order, and the limit for the next batch.
    """
    done, parts = 0, []
    while done < batch.size:
        stop = min(batch.size, done + (limit or batch.size))
        piece = batch if stop - done == batch.size else batch.piece(done, stop)
        try:
            parts.append(function(piece))
            done = stop
            continue
        except Exception as error:
            if piece.size == 1 or not is_memory_error(error):
                raise
        # Outside of the handler: inside, the error would still hold the tensors of the failed call.
        limit = piece.size // 2
        gc.collect()
        torch.cuda.empty_cache()  # does nothing where there is none
        warnings.warn(f"{piece.size} samples do not fit in memory; going on with {limit} at a time", stacklevel=2)
    whole = len(parts) == 1
    return parts[0] if whole else {name: torch.cat([part[name] for part in parts]) for name in parts[0]}, limit


def to_device(batch: Batch, device: torch.device, *, ahead: bool = False) -> Batch:
    """The batch with the model's arguments on `device`; the host does not wait for a CUDA device.

    With `ahead`, tensors stay where they are if they cannot be copied to a CUDA device while it computes.
    """

    def copied(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if device.type != "cuda" or x.device.type != "cpu" or x.layout != torch.strided:  # no pinned memory
            return x if ahead else x.to(device)
        # A loader may write its next batch into the memory that it pinned itself, so that this copy is waited for.
        return x.to(device) if x.is_pinned() else x.pin_memory().to(device, non_blocking=True)

    return batch.map(copied)


class Prefetch:
    """Gives batches one by one, for a loop that calls `fetch` after it has started the work on a batch.

    The loader is asked for the next batch only after the work on the current batch has been started. Until then the
    current batch may be needed again, and a loader may use the same memory for all batches.

    Args:
        batches: where they come from.
        device: where `deliver` brings batches. If it is not a CUDA device, `fetch` does nothing.
    """

    def __init__(self, batches: Iterator[Batch], device: torch.device) -> None:
        self._batches, self._device = batches, device
        self._next: Batch | None = None
        self._copy: tuple[Batch, Batch, Any] | None = None  # a batch, its copy, and the event of the copy's arrival

    def take(self) -> Batch | None:
        """The next batch; None at the end."""
        found, self._next = self._next, None
        return next(self._batches, None) if found is None else found

    def fetch(self) -> None:
        """Read the next batch, and start its copy to the device, on a stream of its own."""
        if self._device.type == "cuda" and (batch := next(self._batches, None)) is not None:
            self._next, stream = batch, side_stream(self._device)
            with suppress(RuntimeError), torch.inference_mode(), torch.cuda.stream(stream):  # there may be no room yet
                self._copy = batch, to_device(batch, self._device, ahead=True), stream.record_event()

    @torch.inference_mode()
    def deliver(self, batch: Batch) -> Batch:
        """The batch on the device: the copy that `fetch` started, which is given only once, or a new copy."""
        ready, self._copy = self._copy, None
        if ready is None or ready[0] is not batch:
            return to_device(batch, self._device)
        _, copy, event = ready
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(event)
        given = (*batch.args, *batch.kwargs.values())
        for x, before in zip((*copy.args, *copy.kwargs.values()), given, strict=True):
            if x is not before:
                x.record_stream(stream)  # the memory belongs to the other stream, which must not reuse it too early
        return to_device(copy, self._device)


@cache
def side_stream(device: torch.device) -> Any:
    """The stream for copies to `device`. It is made once, because memory that was used on a stream stays with it."""
    return torch.cuda.Stream(device)
