"""A CUDA device that is only pretended: its copies are as late as those of a real one may be."""

from contextlib import contextmanager

import torch
from torch import Tensor

from tests.inference.cases import Counting
from torch_boc.inference import device as module

CUDA = torch.device("cuda", 1)


class OnCuda(Tensor):
    """A tensor that says it is on the device."""

    device = property(lambda self: CUDA)


class Pinned(Tensor):
    """A tensor in pinned memory."""


class Model(Counting):
    """Runs only on the device."""

    def __init__(self, log) -> None:
        super().__init__()
        self.log = log

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        assert isinstance(x, OnCuda)
        self.log.append("the model runs")
        return super().forward(x.as_subclass(Tensor))


class Stream:
    """The work that waits on a stream; on the stream of the computation nothing waits."""

    def __init__(self, log, name) -> None:
        self.log, self.name, self.work = log, name, []

    def record_event(self) -> list:
        """A point in the work of the stream: what comes before it."""
        self.log.append(f"event after {self.name}")
        return list(self.work)

    def wait_event(self, event) -> None:
        """Do what comes before the event, once."""
        self.log.append(f"{self.name} waits")
        while event:
            event.pop(0)()


class Cuda:
    """Patches torch so that tensors can be copied to `CUDA`. What happens is written to `log`, in order."""

    def __init__(self, monkeypatch) -> None:
        self.log, self.full = [], False
        self.compute, self._to = Stream(self.log, "compute"), Tensor.to
        self.current = self.compute
        module.side_stream.cache_clear()
        streams = {"Stream": lambda device: Stream(self.log, "side"), "stream": self.stream}
        for name, value in {**streams, "current_stream": lambda device: self.current}.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(Tensor, "to", lambda *args, **options: self.to(*args, **options))
        monkeypatch.setattr(Tensor, "pin_memory", lambda x: self.log.append("pinned") or x.clone().as_subclass(Pinned))
        monkeypatch.setattr(Tensor, "is_pinned", lambda x: isinstance(x, Pinned))
        monkeypatch.setattr(Tensor, "record_stream", lambda x, stream: self.log.append(f"memory for {stream.name}"))

    @contextmanager
    def stream(self, stream):
        """As torch.cuda.stream."""
        self.current = stream
        try:
            yield
        finally:
            self.current = self.compute

    def to(self, x: Tensor, *args, **options):
        """A copy that is done when the stream comes to it, or at once if the caller waits."""
        if args != (CUDA,):
            return self._to(x, *args, **options)
        if isinstance(x, OnCuda):
            return x
        stream, late = self.current, options.get("non_blocking", False)
        if self.full and stream is not self.compute:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        self.log.append(f"copy on {stream.name}" if late else f"copy on {stream.name}, awaited")
        target = torch.full_like(x.as_subclass(Tensor), torch.nan)
        if late and isinstance(x, Pinned) and stream is not self.compute:
            stream.work.append(lambda: target.copy_(x.as_subclass(Tensor)))
        else:
            target.copy_(x.as_subclass(Tensor))
        return target.as_subclass(OnCuda)
