"""The device on which a model runs: its mode there, copies to it and from it, and pieces that fit in its memory.

On CUDA and XPU, the next batches are copied while the model runs on the current one: their tensors are put into pinned
memory, and a second stream copies them from there. The stream on which the model runs waits for the copy. The program
does not wait.
"""

import gc
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..data.errors import is_memory_error
from ..data.parquet import Column
from .batches import Batch

# After this many batches in pieces, pieces of twice the size are tried again.
PATIENCE = 32


def has_streams(device: torch.device) -> bool:
    """Whether copies to and from the device can overlap its computation, from and to pinned memory."""
    return device.type in ("cuda", "xpu")


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


class HostCopy(NamedTuple):
    """Columns that are being copied to the CPU.

    Attributes:
        columns: on the CPU; what comes from a device with streams may not be there yet.
        blocks: what was copied at once, by the names of its columns, in its order.
        event: happens when all copies from such a device have arrived; None without one.
    """

    columns: dict[str, Column]
    blocks: dict[tuple[str, ...], Tensor]
    event: Any

    def wait(self) -> dict[str, Column]:
        """Wait for the copies, and return the columns, of which none is in pinned memory: users may keep many."""
        if self.event is not None:
            self.event.synchronize()
        for names, block in self.blocks.items():
            self.columns.update(zip(names, block.clone().unbind(), strict=True))
        return self.columns


def start_host_copy(columns: Mapping[str, Column]) -> HostCopy:
    """Start the copy of tensors to the CPU, those of one dtype at once; from a GPU into pinned memory."""
    alike, event = defaultdict[Any, list[str]](list), None
    for name, x in columns.items():
        if isinstance(x, Tensor) and not x.is_cpu:
            alike[x.device, x.dtype, x.shape].append(name)
    blocks = {}
    for (device, *_), names in alike.items():
        stacked = torch.stack([columns[name] for name in names])  # type: ignore[misc]
        blocks[*names,] = stacked.to("cpu", non_blocking=has_streams(device))
    if blocks and has_streams(device):  # the copies run on its own current stream, wherever the model began
        event = torch.get_device_module(device).current_stream(device).record_event()
    return HostCopy(dict(columns), blocks, event)


class SplitOnOOM:
    """Calls functions on batches in pieces as large as the memory allows, and joins their columns.

    A piece that does not fit is halved. A single sample that does not fit is an error. After a while, larger pieces are
    tried again, because others may have used the memory.

    Attributes:
        limit: the largest number of samples in a piece; None if whole batches fit.
    """

    def __init__(self) -> None:
        self.limit: int | None = None
        self._fitted = 0

    def __call__(self, function: Callable[[Batch], dict[str, Tensor]], batch: Batch) -> dict[str, Tensor]:
        """The columns of all samples of a batch in their order."""
        done, parts = 0, []
        while done < batch.size:
            stop = min(batch.size, done + (self.limit or batch.size))
            piece = batch if stop - done == batch.size else batch.piece(done, stop)
            try:
                parts.append(function(piece))
                done = stop
                continue
            except Exception as error:
                if piece.size == 1 or not is_memory_error(error):
                    raise
            # Outside of the handler: inside, the error would still hold the tensors of the failed call.
            self.limit, self._fitted = piece.size // 2, 0
            gc.collect()
            torch.cuda.empty_cache()  # does nothing where there is none
            words = f"{piece.size} samples do not fit in memory; continuing with {self.limit} at a time"
            warnings.warn(words, stacklevel=2)
        self._fitted += self.limit is not None
        if self.limit is not None and self._fitted % PATIENCE == 0:
            self.limit = None if 2 * self.limit >= batch.size else 2 * self.limit
        return parts[0] if len(parts) == 1 else {name: torch.cat([x[name] for x in parts]) for name in parts[0]}


def to_device(batch: Batch, device: torch.device, *, ahead: bool = False, trusted: bool = False) -> Batch:
    """The batch with the model's arguments on `device`; the host does not wait for a device with streams.

    With `ahead`, tensors stay where they are if they cannot be copied while the device computes. `trusted` says that
    memory that the loader has pinned is not written to again.
    """

    def copied(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if not has_streams(device) or x.device.type != "cpu" or x.layout != torch.strided:  # no pinned memory
            return x if ahead else x.to(device)
        # A loader may write its next batch into the memory that it pinned itself: wait for this copy.
        if x.is_pinned() and not trusted:
            return x.to(device)
        return (x if x.is_pinned() else x.pin_memory()).to(device, non_blocking=True)

    return batch.map(copied)


class Prefetch:
    """Gives batches one by one, for a loop that calls `fetch` after it has started the work on a batch.

    The loader is asked for the next batch only after the work on the current batch has been started. Until then the
    current batch may be needed again, and a loader may use the same memory for all batches.

    Args:
        batches: where they come from.
        device: where `deliver` brings batches. If it has no streams, `fetch` does nothing.
        trusted: whether each batch has memory of its own, which nobody writes to.
        ahead: how many batches are read and copied ahead of the current one; 1 if they are not trusted.
    """

    def __init__(
        self, batches: Iterator[Batch], device: torch.device, *, trusted: bool = False, ahead: int = 1
    ) -> None:
        self._batches, self._device, self._trusted = batches, device, trusted
        self._ahead = ahead if trusted else 1
        self._next: deque[Batch] = deque()
        self._copies: deque[tuple[Batch, Batch, Any]] = deque()  # a batch, its copy, and the event of its arrival

    def next_batch(self) -> Batch | None:
        """The next batch; None at the end."""
        return self._next.popleft() if self._next else next(self._batches, None)

    def fetch(self) -> None:
        """Read the next batches, and start their copies to the device, on a stream of their own."""
        while has_streams(self._device) and len(self._next) < self._ahead:
            if (batch := next(self._batches, None)) is None:
                return
            self._next.append(batch)
            stream = side_stream(self._device)
            with suppress(RuntimeError), torch.inference_mode(), torch.get_device_module(self._device).stream(stream):
                copy = to_device(batch, self._device, ahead=True, trusted=self._trusted)  # if there is room
                self._copies.append((batch, copy, stream.record_event()))

    @torch.inference_mode()
    def deliver(self, batch: Batch) -> Batch:
        """The batch on the device: the copy that `fetch` started, which is given only once, or a new copy."""
        ready = self._copies.popleft() if self._copies else None
        if ready is None or ready[0] is not batch:
            self._copies.clear()  # memory is short, or the loop has left batches out
            return to_device(batch, self._device, trusted=self._trusted)
        _, copy, event = ready
        stream = torch.get_device_module(self._device).current_stream(self._device)
        stream.wait_event(event)
        given = (*batch.args, *batch.kwargs.values())
        for x, before in zip((*copy.args, *copy.kwargs.values()), given, strict=True):
            if x is not before:
                x.record_stream(stream)  # the memory belongs to the other stream, which must not reuse it too early
        return to_device(copy, self._device)


@cache
def side_stream(device: torch.device) -> Any:
    """The stream for copies to `device`. It is made once, because memory that was used on a stream stays with it."""
    return torch.get_device_module(device).Stream(device)
