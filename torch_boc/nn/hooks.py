"""Watch a module's logits while it runs in somebody else's loop."""

from types import TracebackType
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .outputs import find_logits

if TYPE_CHECKING:
    from ..metrics import BoCMetric


class Watch:
    """A forward hook that feeds the logits of a module to a metric; a context manager, or a handle to `remove`.

    Attributes:
        metric: what the logits are added to, at every call of the module.
    """

    def __init__(self, module: nn.Module, metric: "BoCMetric") -> None:
        self.metric = metric
        self._handle: RemovableHandle | None = module.register_forward_hook(self._add)

    def _add(self, module: nn.Module, args: Any, output: Any) -> None:
        logits = find_logits(output).detach()
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


def watch(module: nn.Module, metric: "BoCMetric | None" = None) -> Watch:
    """Feed the logits that `module` returns, with classes on their last axis, to a metric while it runs.

    Every call of the module is one update: a module that runs several times in a step (gradient accumulation, a forward
    pass for each view of an image, gradient checkpointing) is counted each time. There are no targets here, so the
    keys that need them are NaN. The hook is removed on leaving the `with` block, also by an error.

    Args:
        module: returns logits as a tensor, in a mapping under "logits", or as `.logits`.
        metric: by default a new `BoCMetric`; the same metric may watch several modules.

    >>> model = torch.nn.Linear(5, 3)
    >>> with watch(model) as watching:
    ...     _ = model(torch.randn(8, 5))
    >>> watching.compute()["samples"]
    tensor(8., dtype=torch.float64)
    """
    from ..metrics import BoCMetric

    return Watch(module, BoCMetric() if metric is None else metric)
