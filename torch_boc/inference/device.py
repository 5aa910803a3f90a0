"""The device on which a model runs: its mode there, copies to it and from it, and pieces that fit in its memory.

On CUDA, the next batch is copied while the model runs on the current one. A thread puts the tensors of a batch into
pinned memory, and a second stream copies them from there. The stream on which the model runs waits for the copy. The
program itself does not wait.
"""

import gc
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..data.atomic import mentions_memory
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
        model.train(modes[0][1])
        for module, training in modes:
            module.training = training


class Landing(NamedTuple):
    """Columns that are being copied to the CPU.

    Attributes:
        columns: on the CPU; what comes from a CUDA device may not be there yet.
        events: one for each CUDA device among the columns, which happens when all of its copies have arrived.
        pinned: the names of the columns in pinned memory.
    """

    columns: dict[str, Column]
    events: Sequence[Any] = ()
    pinned: Collection[str] = ()

    def wait(self) -> dict[str, Column]:
        """Wait for the copies, and return the columns, of which none is in pinned memory: users may keep many."""
        for event in self.events:
            event.synchronize()
        for name in self.pinned:
            self.columns[name] = self.columns[name].clone()  # type: ignore[union-attr]
        return self.columns


def land(columns: Mapping[str, Column]) -> Landing:
    """Start the copy of the tensors to the CPU; from CUDA it goes into pinned memory."""
    tensors = {name: x for name, x in columns.items() if isinstance(x, Tensor)}
    sources = {name: x.device for name, x in tensors.items() if x.device.type == "cuda"}
    landed = {name: x.to("cpu", non_blocking=name in sources) for name, x in tensors.items()}
    events = []
    for device in dict.fromkeys(sources.values()):
        events.append(torch.cuda.Event())
        # The copies run on the device's own current stream, wherever the model began.
        events[-1].record(torch.cuda.current_stream(device))
    return Landing({**columns, **landed}, events, sources.keys())


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether `error` says that memory ran out: on the CPU, on a GPU, or in a library that runs on the GPU."""
    return isinstance(error, torch.OutOfMemoryError) or mentions_memory(error)


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
        except RuntimeError as error:
            if piece.size == 1 or not is_out_of_memory(error):
                raise
        # Outside of the handler: inside, the error would still hold the tensors of the failed call.
        limit = piece.size // 2
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        warnings.warn(f"{piece.size} samples do not fit in memory; going on with {limit} at a time", stacklevel=2)
    if len(parts) == 1:
        return parts[0], limit
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}, limit


def can_be_pinned(x: Tensor) -> bool:
    """Whether a copy of `x` to a GPU can run at the same time as the computation: from pinned memory it can."""
    return x.device.type == "cpu" and x.layout == torch.strided


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch with the model's arguments on `device`; the host does not wait for a CUDA device."""

    def copied(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if device.type != "cuda":
            return x.to(device)
        if not can_be_pinned(x):
            return x.to(device, non_blocking=x.device.type != "cpu")
        # A loader may write its next batch into the memory that it pinned itself, so that this copy is waited for.
        return x.to(device) if x.is_pinned() else x.pin_memory().to(device, non_blocking=True)

    return batch.map(copied)


class Samples(NamedTuple):
    """What is known of some samples before the model runs, as columns of their table, and their batch."""

    known: dict[str, Column]
    batch: Batch


# A batch whose tensors are being copied to the device, those tensors, and the event of their arrival.
_Copy = tuple[Batch, list[Tensor], Any]


class Prefetch:
    """Gives samples batch by batch, for a loop that calls `fetch` after it has started the work on a batch.

    The loader is asked for the next batch only after the work on the current batch has been started. Until then the
    current batch may be needed again, and a loader may use the same memory for all batches.

    Args:
        samples: where the samples come from; they are read by the thread that iterates.
        device: where `deliver` brings batches. If it is not a CUDA device, `fetch` does nothing.
    """

    def __init__(self, samples: Iterator[Samples], device: torch.device) -> None:
        self._samples, self._device = samples, device
        self._thread = ThreadPoolExecutor(1, "torch_boc") if device.type == "cuda" else None
        self._next: Samples | Exception | None = None
        self._copying: tuple[Batch, Future[_Copy | None]] | None = None

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.shutdown()

    def take(self) -> Samples | None:
        """The next samples; None at the end."""
        found, self._next = self._next, None
        if isinstance(found, Exception):
            raise found
        return next(self._samples, None) if found is None else found

    def fetch(self) -> None:
        """Read the next samples, and start the copy of their batch to the device.

        An error of the loader is raised when these samples are asked for, because earlier tables may not be ready yet.
        """
        if self._thread is None:
            return
        try:
            self._next = next(self._samples, None)
        except Exception as error:
            self._next = error
        if isinstance(self._next, Samples):
            self._copying = self._next.batch, self._thread.submit(_copy, self._next.batch, self._device)

    @torch.inference_mode()
    def deliver(self, batch: Batch) -> Batch:
        """The batch on the device: the copy that `fetch` started, which is given only once, or a new copy."""
        (fetched, copying), self._copying = self._copying or (None, None), None
        copy = None if copying is None else copying.result()
        if copy is None or fetched is not batch:
            return to_device(batch, self._device)
        stream = torch.cuda.current_stream(self._device)
        on_device, tensors, event = copy
        stream.wait_event(event)
        for x in tensors:
            x.record_stream(stream)  # the memory belongs to the other stream, which must not reuse it too early
        return to_device(on_device, self._device)


@torch.inference_mode()
def _copy(batch: Batch, device: torch.device) -> _Copy | None:
    """Start the copy; None if it does not fit in memory. Tensors that are not on the CPU stay where they are."""
    tensors: list[Tensor] = []
    waits = False

    def copied(x: Any) -> Any:
        nonlocal waits
        if not isinstance(x, Tensor) or not can_be_pinned(x):
            return x
        waits = waits or x.is_pinned()
        tensors.append((x if x.is_pinned() else x.pin_memory()).to(device, non_blocking=True))
        return tensors[-1]

    stream, event = side_stream(device), torch.cuda.Event()
    try:
        with torch.cuda.stream(stream):
            on_device = batch.map(copied)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return None
    event.record(stream)
    if waits:
        event.synchronize()  # the loader may write its next batch into the memory that it pinned itself
    return on_device, tensors, event


@cache
def side_stream(device: torch.device) -> Any:
    """The stream for copies to `device`. It is made once, because memory that was used on a stream stays with it."""
    return torch.cuda.Stream(device)
