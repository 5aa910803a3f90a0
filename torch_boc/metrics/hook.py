"""Watch the logits of a module while it runs in a loop that you did not write."""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..data.finding import find_logits
from ..functional.checks import as_binary, classes_last
from ..nn import DriftMonitor
from .coherence import BoCMetric


class Hook:
    """A forward hook that stays with its module: a copy of the module, or a saved one, has a hook that does nothing.

    So what the hook refers to is neither copied nor saved, and a saved module can be loaded without this package.
    """

    def __init__(self, take: Callable[[Any], None]) -> None:
        self.take = take

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        self.take(output)

    def __reduce__(self) -> Any:
        return getattr, (nullcontext(), "__exit__")  # takes any arguments, and returns None


class Problems:
    """Turns errors into one warning for each kind, so that the probe never ends the work of others; or raises them.

    Args:
        on_error: "warn" or "raise".
        who: what goes on after an error.
        more: the end of the warning.

    >>> problems = Problems("warn")
    >>> with warnings.catch_warnings(record=True, action="always") as said:
    ...     for size in (16, 7):
    ...         with problems.tolerated("a batch of val"):
    ...             raise ValueError(f"expected logits of shape (N, C), got ({size},)")
    >>> len(said)
    1
    """

    def __init__(self, on_error: str = "raise", who: str = "torch_boc", more: str = "") -> None:
        if on_error not in ("warn", "raise"):
            raise ValueError(f"expected on_error among warn, raise, got {on_error!r}")
        self.on_error, self.who, self.more = on_error, who, more
        self.kinds: set[str] = set()

    def say(self, text: str) -> None:
        """Warn, once for each kind of text."""
        kind = re.sub(r"\d+", "#", text)  # batches differ in size
        if kind not in self.kinds:
            self.kinds.add(kind)
            warnings.warn(f"{self.who} goes on without {text}. This is said once{self.more}", stacklevel=5)

    @contextmanager
    def tolerated(self, what: str) -> Iterator[None]:
        """Continue after an error in the block, which is about `what`. Interruptions (Ctrl-C) are still raised."""
        try:
            yield
        except Exception as error:
            if self.on_error == "raise":
                raise
            self.say(f"{what}: {type(error).__name__}: {error}")


class watch:  # noqa: N801, it is used as a function
    """Add the logits that `module` returns to a metric, a monitor, or both, at every call of the module.

    Every call of the module is one update. A module that runs several times in a step (gradient accumulation, a forward
    pass for each view of an image, gradient checkpointing) is counted each time. There are no targets here, so the
    keys that need targets are NaN. The hook is removed at the end of the `with` block, also after an error. A copy of
    the module, or a saved one, is not watched.

    Nothing that goes wrong in the hook reaches the caller of the module. A call whose logits cannot be used is left
    out, with one warning for each reason.

    Args:
        module: a module that returns logits in any form that `torch_boc.data.find_logits` knows.
        metric: by default a new `BoCMetric`, or none if there is a monitor; the same metric may watch several modules.
        dim: the class axis; 1 for segmentation, -1 for tokens. Logits of shape (N, C) do not need it.
        binary: take the single logit z of a binary classifier, of shape (N,) or (N, 1), for the two classes (0, z).
        monitor: a `DriftMonitor` with a test, which gets the samples in the order of the calls. The pixels or tokens of
            one sample depend on each other, so that its alarm is valid only for logits with one row for each sample.
        on_alarm: called once, with the monitor, after the call of the module in which the alarm was raised. For this
            the host reads the alarm after every call. Without it, no value is read back.

    Attributes:
        metric: the metric that gets the logits of every call of the module, or None.
        monitor: the monitor that gets them, or None.
        skipped: how many calls could not be used. There was a warning for each reason.

    >>> model = torch.nn.Linear(5, 3)
    >>> with watch(model) as watching:
    ...     _ = model(torch.randn(8, 5))
    >>> watching.compute()["samples"]
    tensor(8., dtype=torch.float64)
    >>> from torch_boc import ConformalTest
    >>> test = ConformalTest("max_logit").calibrate(torch.linspace(1, 5, 999)[:, None] * torch.eye(3)[0])
    >>> model = torch.nn.Identity()
    >>> with watch(model, monitor=DriftMonitor(test), on_alarm=lambda monitor: print("drift")) as watching:
    ...     for _ in range(5):
    ...         _ = model(torch.linspace(1, 2, 20)[:, None] * torch.eye(3)[0])
    drift
    >>> int(watching.monitor.seen), watching.monitor.change
    (100, (0, 4))
    """

    def __init__(
        self,
        module: nn.Module,
        metric: BoCMetric | None = None,
        *,
        dim: int | None = None,
        binary: bool = False,
        monitor: DriftMonitor | None = None,
        on_alarm: Callable[[DriftMonitor], Any] | None = None,
    ) -> None:
        if monitor is None:
            if on_alarm is not None:
                raise ValueError("expected a monitor for on_alarm, got none; give monitor=DriftMonitor(test)")
            metric = BoCMetric() if metric is None else metric
        elif not isinstance(monitor, DriftMonitor):
            raise TypeError(f"expected monitor as a torch_boc.DriftMonitor, got {type(monitor).__name__}")
        elif monitor.conformal_test is None:
            raise ValueError("expected a monitor with a test, got one without; give DriftMonitor(test)")
        else:
            monitor.conformal_test.check_calibrated()
        self.metric, self.monitor, self.dim, self.binary = metric, monitor, dim, binary
        self.skipped = 0
        self._on_alarm = on_alarm
        self._problems = Problems("warn", "watch", "; the attribute `skipped` counts the calls that are left out")
        self._handle = module.register_forward_hook(Hook(self._take))

    def _take(self, output: Any) -> None:
        self.skipped += 1
        with self._problems.tolerated("a call of the module"):
            self._add(find_logits(output).detach())
            self.skipped -= 1

    def _add(self, logits: Tensor) -> None:
        if self.binary:
            logits, _ = as_binary(logits, dim=self.dim)
        else:
            logits = classes_last(logits, self.dim)
        rows = logits.reshape(-1, logits.shape[-1])
        if self.metric is not None:
            if getattr(self.metric, "device", rows.device) != rows.device:
                self.metric.to(rows.device)
            self.metric.update(rows)
        if self.monitor is not None:
            if self.monitor.evidence.device != rows.device:
                with torch.inference_mode(False):  # a buffer made in inference mode could not be changed outside
                    self.monitor.to(rows.device)
            self.monitor.update(rows, dim=-1)
            if self._on_alarm is not None and self.monitor.change is not None:
                on_alarm, self._on_alarm = self._on_alarm, None
                on_alarm(self.monitor)

    def compute(self) -> dict[str, Tensor]:
        """The results of the metric so far."""
        if self.metric is None:
            raise ValueError(
                "expected a metric to compute, got a monitor alone; read watching.monitor, or give both, as in "
                "watch(module, BoCMetric(), monitor=monitor)"
            )
        result: dict[str, Tensor] = self.metric.compute()
        return result

    def remove(self) -> None:
        """Stop watching. A second call does nothing."""
        self._handle.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()
