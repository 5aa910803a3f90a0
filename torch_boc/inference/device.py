"""The device and the mode in which a model runs, and the copy of its results to the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Landing(NamedTuple):
    """Columns that are being copied to the CPU."""

    columns: dict[str, Tensor]
    event: Any

    def wait(self) -> dict[str, Tensor]:
        """Wait for the copy, and return the columns."""
        if self.event is not None:
            self.event.synchronize()
        return self.columns


def land(columns: dict[str, Tensor], device: torch.device) -> Landing:
    """Start the copy to the CPU; from CUDA it goes into pinned memory."""
    if device.type != "cuda":
        return Landing({name: x.cpu() for name, x in columns.items()}, None)
    landed = {name: x.to("cpu", non_blocking=True) for name, x in columns.items()}
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return Landing(landed, event)


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
