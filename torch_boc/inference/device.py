"""The device and the mode in which a model runs, and the copy of its results to the CPU."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..data.parquet import Column


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
        return {
            name: x.clone() if name in self.pinned and isinstance(x, Tensor) else x for name, x in self.columns.items()
        }


def land(columns: Mapping[str, Column]) -> Landing:
    """Start the copy of the tensors to the CPU; from CUDA it goes into pinned memory."""
    tensors = {name: x for name, x in columns.items() if isinstance(x, Tensor)}
    sources = {name: x.device for name, x in tensors.items() if x.device.type == "cuda"}
    landed = {name: x.to("cpu", non_blocking=name in sources) for name, x in tensors.items()}
    return Landing(
        {**columns, **landed}, [_copied(device) for device in dict.fromkeys(sources.values())], sources.keys()
    )


def _copied(device: torch.device) -> Any:
    """An event after the copies from `device`: they run on its own current stream, wherever the model began."""
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event


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
