"""Where a model runs, in which mode, and how its results come back."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Landing(NamedTuple):
    """Columns on their way to the CPU."""

    columns: dict[str, Tensor]
    event: Any

    def wait(self) -> dict[str, Tensor]:
        """The columns, arrived."""
        if self.event is not None:
            self.event.synchronize()
        return self.columns


def land(columns: dict[str, Tensor], device: torch.device) -> Landing:
    """Start the copy to the CPU, into pinned memory from CUDA."""
    if device.type != "cuda":
        return Landing({name: x.cpu() for name, x in columns.items()}, None)
    landed = {name: x.to("cpu", non_blocking=True) for name, x in columns.items()}
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return Landing(landed, event)


def device_of(model: nn.Module) -> torch.device:
    """Where the first parameter or buffer is."""
    tensor = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if tensor is None else tensor.device


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode for a while; afterwards each module, frozen ones too, has the mode that it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        model.train(modes[0][1])
        for module, training in modes:
            module.training = training
