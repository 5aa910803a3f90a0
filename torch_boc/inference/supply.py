"""Brings batches to the device: on CUDA, the next batch is copied while the model runs on the current one.

A thread puts the tensors of a batch into pinned memory, and a second stream copies them from there. The stream on which
the model runs waits for the copy. The program itself does not wait.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data.parquet import Column
from .batches import Batch, can_be_pinned
from .fitting import is_out_of_memory


class Samples(NamedTuple):
    """What is known of some samples before the model runs, as columns of their table, and their batch."""

    known: dict[str, Column]
    batch: Batch


class _Copy(NamedTuple):
    """A batch whose tensors are being copied to the device, those tensors, and the event of their arrival."""

    batch: Batch
    tensors: list[Tensor]
    event: Any


class Supply:
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

    def __enter__(self) -> "Supply":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.shutdown()

    def __iter__(self) -> "Supply":
        return self

    def __next__(self) -> Samples:
        found, self._next = self._next, None
        if isinstance(found, Exception):
            raise found
        return next(self._samples) if found is None else found

    def fetch(self) -> None:
        """Read the next samples, and start the copy of their batch to the device.

        An error of the loader is raised when these samples are asked for, because earlier tables may not be ready yet.
        """
        if self._thread is None:
            return
        try:
            self._next = next(self._samples)
        except Exception as error:  # StopIteration as well
            self._next = error
        else:
            batch = self._next.batch
            self._copying = batch, self._thread.submit(_copy, batch, self._device)

    @torch.inference_mode()
    def deliver(self, batch: Batch) -> Batch:
        """The batch on the device: the copy that `fetch` started, which is given only once, or a new copy."""
        (fetched, copying), self._copying = self._copying or (None, None), None
        copy = None if copying is None else copying.result()
        if copy is None or fetched is not batch:
            return batch.to(self._device)
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(copy.event)
        for x in copy.tensors:
            x.record_stream(stream)  # the memory belongs to the other stream, which must not reuse it too early
        return copy.batch.to(self._device)


@torch.inference_mode()
def _copy(batch: Batch, device: torch.device) -> _Copy | None:
    """Start the copy; None if it does not fit in memory. Tensors that are not on the CPU stay where they are."""
    tensors: list[Tensor] = []

    def copied(x: Tensor) -> Tensor:
        if not can_be_pinned(x):
            return x
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
    if any(can_be_pinned(x) and x.is_pinned() for x in batch.tensors()):
        event.synchronize()  # the loader may write its next batch into the memory that it pinned itself
    return _Copy(on_device, tensors, event)


@cache
def side_stream(device: torch.device) -> Any:
    """The stream for copies to `device`. It is made once, because memory that was used on a stream stays with it."""
    return torch.cuda.Stream(device)
