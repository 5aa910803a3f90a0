"""What a loader yields, as the arguments of a model."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..data.finding import describe, split_batch
from ..data.parquet import Column
from ..functional.checks import check_target
from .ids import as_ids, take_id


@dataclass(frozen=True)
class Batch:
    """The arguments of a model for `size` samples, and the samples' targets and ids if there are any."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    target: Tensor | None
    size: int
    ids: Column | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """A copy with `function` applied to every tensor among the model's arguments."""
        args = tuple(function(x) if isinstance(x, Tensor) else x for x in self.args)
        kwargs = {name: function(x) if isinstance(x, Tensor) else x for name, x in self.kwargs.items()}
        return Batch(args, kwargs, self.target, self.size, self.ids)

    def tensors(self) -> list[Tensor]:
        """The tensors among the model's arguments."""
        return [x for x in (*self.args, *self.kwargs.values()) if isinstance(x, Tensor)]

    def piece(self, start: int, stop: int) -> "Batch":
        """The samples from `start` up to `stop`.

        Tensors, arrays, lists and tuples with one entry for each sample are cut. What has another length is kept whole.
        """
        args = tuple(x[start:stop] if _entries(x) == self.size else x for x in self.args)
        kwargs = {name: x[start:stop] if _entries(x) == self.size else x for name, x in self.kwargs.items()}
        target = None if self.target is None else self.target[start:stop]
        ids = None if self.ids is None else self.ids[start:stop]
        return Batch(args, kwargs, target, stop - start, ids)

    def to(self, device: torch.device) -> "Batch":
        """A copy with the model's arguments on `device`; the host does not wait for a CUDA device."""
        if device.type != "cuda":
            return self.map(lambda x: x.to(device))
        return self.map(lambda x: _to_cuda(x, device))


def _entries(x: Any) -> int | None:
    """How many entries a list, a plain tuple or an array has; None for anything else."""
    if isinstance(x, Tensor) or type(x).__module__ == "numpy":
        return len(x) if x.ndim else None
    return len(x) if isinstance(x, list | tuple) and not hasattr(x, "_fields") else None


def can_be_pinned(x: Tensor) -> bool:
    """Whether a copy of `x` to a GPU can run at the same time as the computation: from pinned memory it can."""
    return x.device.type == "cpu" and x.layout == torch.strided


def _to_cuda(x: Tensor, device: torch.device) -> Tensor:
    if not can_be_pinned(x):
        return x.to(device, non_blocking=x.device.type != "cpu")
    # A loader may write its next batch into the memory that it pinned itself, so that this copy is waited for.
    return x.to(device) if x.is_pinned() else x.pin_memory().to(device, non_blocking=True)


class BatchReader:
    """Turns what a loader yields into a `Batch` for one model.

    A batch is x, (x, target), or a mapping with the target under a name of `torch_boc.data.finding.TARGET_NAMES`. An
    argument that the model's forward requires is never the target. x is a tensor, a sequence of tensors
    (positional arguments) or a mapping (keyword arguments). As in transformers' Trainer, keys that the model's forward
    does not take are left out. With an `id`, the batch also has ids: (x, target, id), or a mapping with that key.

    >>> batch = BatchReader(torch.nn.Linear(3, 2)).read((torch.zeros(4, 3), torch.tensor([0, 1, 1, 0])))
    >>> batch.size, batch.target
    (4, tensor([0, 1, 1, 0]))
    """

    def __init__(self, model: nn.Module, id: str | None = None) -> None:
        self._id = id
        parameters = inspect.signature(model.forward).parameters.values()
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        self._names = {x.name for x in parameters if x.kind in named}
        self._required = {x.name for x in parameters if x.kind in named and x.default is inspect.Parameter.empty}
        self._any_name = any(x.kind is inspect.Parameter.VAR_KEYWORD for x in parameters)

    def read(self, batch: Any) -> Batch:
        """The arguments for one call of the model."""
        ids = None
        if self._id is not None:
            batch, ids = take_id(batch, self._id, self._required)
        inputs, target = split_batch(batch, inputs=self._required)
        args = () if isinstance(inputs, Mapping) else tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)
        kwargs = self._keywords(inputs) if isinstance(inputs, Mapping) else {}
        size = next((len(x) for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.ndim), None)
        if size is None:
            raise TypeError(
                f"expected a batch with tensors of shape (N, ...), got {describe(inputs)}; "
                "give the DataLoader a collate_fn that makes tensors, or a Hugging Face data set with_format('torch')"
            )
        return Batch(args, kwargs, _as_target(target, size), size, None if self._id is None else as_ids(ids, size))

    def _keywords(self, inputs: Mapping[Any, Any]) -> dict[str, Any]:
        taken = {
            name: x for name, x in inputs.items() if name in self._names or (self._any_name and isinstance(x, Tensor))
        }
        return taken or dict(inputs)


def _as_target(target: Any, size: int) -> Tensor | None:
    if target is None:
        return None
    try:
        values = torch.as_tensor(target)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"expected targets as integer class indices, got {describe(target)}") from error
    return check_target(values, torch.Size([size]))
