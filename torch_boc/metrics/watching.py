"""Watch a module's logits while it runs in somebody else's loop."""

from types import TracebackType
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..data.finding import classes_last, find_logits
from .coherence import BoCMetric


class Watch:
    """A forward hook that feeds the logits of a module to a metric; a context manager, or a handle to `remove`.

    Attributes:
        metric: what the logits are added to, at every call of the module.
    """

    def __init__(self, module: nn.Module, metric: BoCMetric, dim: int | None = None) -> None:
        self.metric, self.dim = metric, dim
        self._handle: RemovableHandle | None = module.register_forward_hook(self._add)

    def _add(self, module: nn.Module, args: Any, output: Any) -> None:
        logits = classes_last(find_logits(output).detach(), self.dim)
        device = getattr(self.metric, "device", logits.device)
        if device != logits.device:
            self.metric.to(logits.device)
        self.metric.update(logits.reshape(-1, logits.shape[-1]))  # a metric has its class axis second

    def compute(self) -> dict[str, Tensor]:
        """The metric's results so far."""
        result: dict[str, Tensor] = self.metric.compute()
        return result

    def remove(self) -> None:
        """Stop watching; harmless when done twice."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def watch(module: nn.Module, metric: BoCMetric | None = None, *, dim: int | None = None) -> Watch:
    """Feed the logits that `module` returns to a metric while it runs.

    Every call of the module is one update: a module that runs several times in a step (gradient accumulation, a forward
    pass for each view of an image, gradient checkpointing) is counted each time. There are no targets here, so the
    keys that need them are NaN. The hook is removed on leaving the `with` block, also by an error.

    Args:
        module: returns logits, in any form that `torch_boc.data.find_logits` knows.
        metric: by default a new `BoCMetric`; the same metric may watch several modules.
        dim: the class axis; by default the last. Logits with four axes or more need it: 1 for segmentation.

    >>> model = torch.nn.Linear(5, 3)
    >>> with watch(model) as watching:
    ...     _ = model(torch.randn(8, 5))
    >>> watching.compute()["samples"]
    tensor(8., dtype=torch.float64)
    """
    return Watch(module, BoCMetric() if metric is None else metric, dim)
