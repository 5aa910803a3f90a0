"""What all metrics share: checks of the input, the precision of the states, and reports of invalid rows."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

from .. import plots
from ..core.dtypes import without_dtype_change
from ..functional.checks import ProbabilityCheck, as_binary, check_classes, check_logits

NAN_STRATEGIES = ("warn", "error", "ignore")


class ProbeMetric(Metric):
    """A metric over logits of shape (N, C), or with more axes.

    Args:
        dim: the class axis; 1 for segmentation, -1 for tokens. By default the second of (N, C); with more axes, that
            which the shape of the target implies.
        binary: take the single logit z of a binary classifier, of shape (N,) or (N, 1), for the two classes (0, z). Its
            targets are 0 and 1 of any dtype.
        num_classes: the number of classes, checked against the logits. By default that of the first batch.
        nan_strategy: what `compute` does about rows with NaN or +inf, which never count: "warn", "error" or "ignore".
        validate_args: whether to refuse probabilities. Only the first batch is checked. On a CPU, `update` raises the
            error; elsewhere `compute` does, because `update` never waits for the device.
        kwargs: passed on to `torchmetrics.Metric`.
    """

    is_differentiable = False
    higher_is_better: bool | None = None
    full_state_update = False

    def __init__(
        self,
        num_classes: int | None = None,
        *,
        dim: int | None = None,
        binary: bool = False,
        nan_strategy: str = "warn",
        validate_args: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if nan_strategy not in NAN_STRATEGIES:
            raise ValueError(f"expected nan_strategy among {', '.join(NAN_STRATEGIES)}, got {nan_strategy!r}")
        self.num_classes = None if num_classes is None else check_classes(num_classes)
        self.dim, self.binary, self.nan_strategy, self.validate_args = dim, binary, nan_strategy, validate_args
        self._first = ProbabilityCheck(binary=binary)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set states without the slow path of Module: a `MetricCollection` sets all of them at every update."""
        if name.startswith("boc_"):
            self._settle()
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    def _settle(self) -> None:
        """Bring the states up to date, in a metric whose batches may wait."""

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add the samples of another metric, given as the metric or its states; arguments and classes must be equal."""
        other = incoming_state if isinstance(incoming_state, ProbeMetric) else None
        if other is not None and type(other) is type(self) and other._defaults.keys() != self._defaults.keys():
            raise ValueError(f"expected a {type(self).__name__} with the same arguments, got one with others")
        classes = None if other is None else other.num_classes
        if None not in (classes, self.num_classes) and classes != self.num_classes:
            raise ValueError(f"expected a metric of {self.num_classes} classes, got one of {classes}")
        super().merge_state(incoming_state)
        self.num_classes = self.num_classes or classes
        # torchmetrics would return the result of an earlier `compute`, and warn that there was no update.
        self._computed, self._update_count = None, max(1, self._update_count)

    def _sync_dist(self, dist_sync_fn: Callable[..., Any] = gather_all_tensors, process_group: Any = None) -> None:
        """Raise in all processes if they have seen different numbers of classes."""
        number = torch.tensor(self.num_classes or 0, device=self.device)
        numbers = {int(x) for x in dist_sync_fn(number, group=process_group or self.process_group)} - {0}
        if len(numbers) > 1:
            raise ValueError(f"expected the same number of classes in all processes, got {sorted(numbers)}")
        for classes in numbers:
            self._agree_on_classes(classes)
        super()._sync_dist(dist_sync_fn, process_group)

    def _add_sums(self, suffix: str, **zeros: Tensor) -> list[str]:
        """Add states that are summed over processes, and return their names.

        Compute groups merge metrics whose states have the same names and, after one batch, the same values. Therefore
        the names of the states contain the arguments.
        """
        for name, value in zeros.items():
            self.add_state(f"boc_{name}_{suffix}", value, dist_reduce_fx="sum")
        return [f"boc_{name}_{suffix}" for name in zeros]

    def _normalize_input(self, preds: Tensor, target: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The logits of a batch with the classes on the last axis, and the target; looks at the first batch.

        With the classes on the last axis they are not checked further: the function that they are given to does that.
        """
        if self.binary:
            preds, target = as_binary(preds, target, dim=self.dim)
        elif isinstance(preds, Tensor) and preds.ndim < 2:
            raise ValueError(
                f"expected logits of shape (N, C), got shape {tuple(preds.shape)}; one sample of C logits is "
                "logits.unsqueeze(0), and N single logits of a binary classifier are taken with binary=True"
            )
        plain = self.binary or (
            isinstance(preds, Tensor) and (self.dim == -1 or (self.dim is None and preds.ndim == 2))
        )
        dim = -1 if plain else check_logits(preds, self.dim, target)
        if preds.shape[dim] != self.num_classes:
            check_logits(preds, dim)
            self._agree_on_classes(preds.shape[dim], preds.shape)
        rows = preds if dim in (-1, preds.ndim - 1) else preds.movedim(dim, -1)
        if self.validate_args:
            self._first.check(rows)
        return rows, target

    def _states(self, names: Iterable[str]) -> list[Tensor]:
        """The states with these names, ready to be changed in place.

        A state that was made in inference mode, for example by `reset`, cannot be changed outside of inference mode. It
        is replaced by a copy.
        """
        states = []
        for name in names:
            state = getattr(self, name)
            if state.is_inference() and not torch.is_inference_mode_enabled():
                state = state.clone()
                setattr(self, name, state)
            states.append(state)
        return states

    def _agree_on_classes(self, classes: int, shape: Sequence[int] = ()) -> None:
        """Remember the number of classes, or raise if an earlier batch or the argument had another number."""
        if self.num_classes is not None and classes != self.num_classes:
            got = f" (shape {tuple(shape)}); `dim` is the class axis" if shape else ""
            raise ValueError(f"expected logits with {self.num_classes} classes, got {classes}{got}")
        self.num_classes = classes

    def _report(self, invalid: Tensor, bad_targets: Tensor | None = None) -> None:
        """Report, in `compute`, the rows and targets that `update` could not use."""
        self._first.raise_if_found()
        if bad_targets is not None and int(bad_targets) > 0:
            raise ValueError(
                f"expected targets in [0, {self.num_classes}), got {int(bad_targets)} outside; "
                "give their value as ignore_index if these samples should not count"
            )
        if self.nan_strategy == "ignore" or int(invalid) == 0:
            return
        message = f"{int(invalid)} rows of logits with NaN or +inf were left out of {type(self).__name__}"
        if self.nan_strategy == "error":
            raise ValueError(f"{message}; nan_strategy='ignore' or 'warn' leaves them out")
        warnings.warn(message, stacklevel=4)

    def plot(self, val: Any = None, ax: Any = None) -> tuple[Any, Any]:
        """Draw the value, or several results of `compute` or `forward` step by step; return figure and axes."""
        values = self.compute() if val is None else val
        return plots.draw_values([values] if isinstance(values, Tensor) else values, ax)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> torch.nn.Module:
        """Move the states with the module to another device, but not to another dtype."""
        return super()._apply(without_dtype_change(fn), exclude_state)


def state_suffix(**arguments: object) -> str:
    """The arguments as part of a state's name. It has no dots, because a state dict reads a dot as a path."""
    return "_".join(f"{name}_{value}" for name, value in arguments.items()).replace(".", "p").replace("-", "m")
