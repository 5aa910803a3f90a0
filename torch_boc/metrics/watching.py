"""The losses or the logits of a loop that you did not write, added to a metric or a drift monitor."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..data.extract import find_logits
from ..data.losses import LossCall, capture_losses, class_targets
from ..functional.checks import as_binary, as_indices, classes_last
from ..nn import DriftMonitor
from .coherence import BoCMetric
from .error_policy import ErrorPolicy


class Hook:
    """A forward hook that stays with its module: a copy of the module, or a saved one, has a hook that does nothing.

    So what the hook refers to is neither copied nor saved, and a saved module can be loaded without this package.
    """

    def __init__(self, on_output: Callable[[Any], None]) -> None:
        self.on_output = on_output

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        self.on_output(output)

    def __reduce__(self) -> Any:
        return getattr, (nullcontext(), "__exit__")  # takes any arguments, and returns None


class watch:  # noqa: N801, it is used as a function
    """Add the logits of a `with` block to a metric, a monitor, or both: of its losses, or of the calls of a module.

    Without a module, logits and targets are those of every classification loss in the block, as
    `torch_boc.data.capture_losses` sees them. Each is added when the next one is computed, and no logits are kept.
    Where a step writes its logits over those of the step before (CUDA graphs, `out=`), watch the module instead. A
    block without such a loss raises an error at its end, and so does one whose losses have several numbers of classes.

    With a module, every call of it is one update. A module that runs several times in a step (gradient accumulation, a
    forward pass for each view of an image, gradient checkpointing) is counted each time. There are no targets here,
    and the keys that need targets are NaN. The hook is removed at the end of the block, even after an error. A copy of
    the module, or a saved one, is not watched.

    No error of the probe reaches the watched code. A call whose logits cannot be used is skipped, with one warning for
    each reason.

    Args:
        module: a module that returns logits in any form that `torch_boc.data.find_logits` knows; None for the losses.
        metric: by default a new `BoCMetric`, or none if there is a monitor; the same metric may watch several modules.
        logits: the name of the submodule that returns the logits, or a function that takes them from the output of the
            module. This, `dim` and `binary` need a module; a loss implies them.
        dim: the class axis; 1 for segmentation, -1 for tokens. Logits of shape (N, C) do not need it.
        binary: take the single logit z of a binary classifier, of shape (N,) or (N, 1), for the two classes (0, z).
        monitor: a `DriftMonitor` with a test, which gets the samples in the order of the calls. The pixels or tokens of
            one sample depend on each other: its alarm is valid only for logits with one row per sample.
        on_alarm: called once, with the monitor, after the call of the module in which the alarm was raised. For this
            the host reads the alarm after every call. Without it, no value is read back.

    Attributes:
        metric: the metric that gets the logits of every call, or None.
        monitor: the monitor that gets them, or None.
        skipped: how many calls could not be used. There was a warning for each reason.

    >>> model, loss = torch.nn.Linear(5, 3), torch.nn.CrossEntropyLoss()
    >>> with watch() as boc:
    ...     for _ in range(4):
    ...         _ = loss(model(torch.zeros(8, 5)), torch.ones(8).long())
    >>> boc.compute()["samples"], boc.compute()["nll"] > 0
    (tensor(32., dtype=torch.float64), tensor(True))
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
        module: nn.Module | None = None,
        metric: BoCMetric | None = None,
        *,
        logits: str | Callable[[Any], Any] | None = None,
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
        else:
            monitor.conformal_test.check_calibrated()
        self.metric, self.monitor, self.dim, self.binary = metric, monitor, dim, binary
        self.skipped = 0
        self._on_alarm = on_alarm
        self._policy = ErrorPolicy("warn", "watch", "; the attribute `skipped` counts these calls")
        self._find = logits if callable(logits) else None
        self._handle: RemovableHandle | None = None
        self._losses: capture_losses | None = None
        self._classes = set[int]()  # of the losses
        self._one_hot: bool | None = None  # whether the first float targets were one-hot
        if module is not None:
            watched = module.get_submodule(logits) if isinstance(logits, str) else module
            self._handle = watched.register_forward_hook(Hook(self._on_output))
        elif (logits, dim, binary) == (None, None, False):
            self._losses = capture_losses(self._on_loss)
        else:
            raise ValueError(
                "expected a module with logits, dim or binary, got none; give watch(model, ...), or leave them out"
            )

    def _on_output(self, output: Any) -> None:
        try:
            logits = find_logits(output if self._find is None else self._find(output)).detach()
            self._add(as_binary(logits, dim=self.dim)[0] if self.binary else classes_last(logits, self.dim))
        except Exception as error:
            self.skipped += 1
            self._policy.handle("a call of the module", error)

    def _on_loss(self, call: LossCall) -> None:
        try:
            if call.refused:
                raise ValueError(call.refused)
            target, self._one_hot = class_targets(call, self._one_hot)
            target = None if target is None else as_indices(target)
            rows, target = as_binary(call.logits, target) if call.binary else (call.logits.movedim(1, -1), target)
            ignored: int | None = getattr(self.metric, "ignore_index", -100)
            if target is not None and ignored is not None and call.ignore_index is not None:
                target = target.masked_fill(target == call.ignore_index, ignored)
            self._classes.add(rows.shape[-1])
            if len(self._classes) == 1:  # otherwise the block ends with an error
                self._add(rows, None if target is None else target.reshape(-1))
        except Exception as error:
            self.skipped += 1
            self._policy.handle(f"a call of {call.loss}", error)

    def _add(self, logits: Tensor, target: Tensor | None = None) -> None:
        rows = logits.reshape(-1, logits.shape[-1])
        if self.metric is not None:
            if getattr(self.metric, "device", rows.device) != rows.device:
                self.metric.to(rows.device)
            self.metric.update(rows, target)
        if self.monitor is not None:
            if self.monitor.evidence.device != rows.device:
                with torch.inference_mode(False):  # a buffer made in inference mode could not be changed outside
                    self.monitor.to(rows.device)
            self.monitor.update(rows)
            if self._on_alarm is not None and self.monitor.change is not None:
                on_alarm, self._on_alarm = self._on_alarm, None
                on_alarm(self.monitor)

    def compute(self) -> dict[str, Tensor]:
        """The results of the metric so far."""
        if self.metric is None:
            raise ValueError(
                "expected a metric to compute, got only a monitor; read watching.monitor, or give both, as in "
                "watch(module, BoCMetric(), monitor=monitor)"
            )
        result: dict[str, Tensor] = self.metric.compute()
        return result

    def remove(self) -> None:
        """Stop watching a module. A second call does nothing."""
        if self._handle is not None:
            self._handle.remove()

    def __enter__(self) -> Self:
        if self._losses is not None:
            self._losses.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()
        if self._losses is None:
            return
        self._losses.__exit__(*error)
        if error[0] is None and (len(self._classes) > 1 or not (self._classes or self.skipped)):
            got = f"losses of {' and '.join(map(str, sorted(self._classes)))} classes" if self._classes else "no loss"
            raise ValueError(
                "expected cross_entropy, nll_loss or binary_cross_entropy_with_logits in the block, with one number of "
                f"classes, got {got}; watch the module that returns the logits: watch(model)"
            )
