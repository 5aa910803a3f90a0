"""Watch the logits of a module while it runs in a loop that you did not write."""

from types import TracebackType
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..data.finding import classes_last, find_logits
from .coherence import BoCMetric


class Watch:
    """A forward hook that adds the logits of a module to a metric. Use it in a `with` block, or call `remove`.

    Attributes:
        metric: the metric that gets the logits of every call of the module.
    """

    def __init__(self, module: nn.Module, metric: BoCMetric, dim: int | None = None) -> None:
        self.metric, self.dim = metric, dim
        self._handle: RemovableHandle | None = module.register_forward_hook(self._add)

    def _add(self, module: nn.Module, args: Any, output: Any) -> None:
        logits = classes_last(find_logits(output).detach(), self.dim)
        device = getattr(self.metric, "device", logits.device)
        if device != logits.device:
            self.metric.to(logits.device)
        self.metric.update(logits.reshape(-1, logits.shape[-1]))  # the class axis of a metric is the second by default

    def compute(self) -> dict[str, Tensor]:
        """The results of the metric so far."""
        result: dict[str, Tensor] = self.metric.compute()
        return result

    def remove(self) -> None:
        """Stop watching. A second call does nothing."""
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
    """Add the logits that `module` returns to a metric, at every call of the module.

    Every call of the module is one update. A module that runs several times in a step (gradient accumulation, a forward
    pass for each view of an image, gradient checkpointing) is counted each time. There are no targets here, so the
    keys that need targets are NaN. The hook is removed at the end of the `with` block, also after an error.

    Args:
        module: a module that returns logits in any form that `torch_boc.data.find_logits` knows.
        metric: by default a new `BoCMetric`; the same metric may watch several modules.
        dim: the class axis; by default the last. Logits with four axes or more need this argument: 1 for segmentation.

    >>> model = torch.nn.Linear(5, 3)
    >>> with watch(model) as watching:
    ...     _ = model(torch.randn(8, 5))
    >>> watching.compute()["samples"]
    tensor(8., dtype=torch.float64)
    """
    return Watch(module, BoCMetric() if metric is None else metric, dim)
