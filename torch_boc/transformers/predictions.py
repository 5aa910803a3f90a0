"""The predictions that users get: the logits, or the numbers that were kept instead."""

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

import numpy
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from torch import Tensor

from ..data.finding import describe

REMEDY = (
    "the logits were not kept, to save memory: take the predicted classes as predictions.argmax(-1), or keep the "
    "logits with BoCTrainerMetrics(keep_logits=True)"
)


class Predictions(NDArrayOperatorsMixin, Mapping[str, Any]):
    """The predictions of a Trainer with the probe: an array of logits, of which often only `argmax(-1)` was kept.

    `predictions["columns"]` has the numbers of the probe on its last axis, in the order of `COLUMNS`. If the logits
    were kept, it behaves like their array, which is `predictions["logits"]`. If not, it knows only the predicted
    classes, `predictions.argmax(-1)` or `np.argmax(predictions, -1)`. Everything else raises an error.

    It is a mapping, because Trainer gathers, pads and joins mappings as it does tensors.

    >>> predictions = Predictions({"columns": torch.tensor([[2.0, 0.1, 0.1, 0.0], [0.0, 0.2, 0.1, 0.5]])})
    >>> predictions.argmax(-1)
    tensor([2, 0])
    >>> predictions.has_logits
    False
    """

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self._parts = dict(parts)

    def argmax(self, axis: int | None = None, out: None = None, *, dim: int | None = None, **options: Any) -> Any:
        """The predicted classes; `axis` or `dim` must be the last. They are 0 where Trainer padded."""
        axis = dim if axis is None else axis
        if self.has_logits:
            return self["logits"].argmax(axis, **options)
        if axis not in (-1, self.ndim - 1) or options or out is not None:
            raise ValueError(f"expected argmax(-1) and no other options, got axis {axis}: {REMEDY}")
        prediction = self["columns"][..., 0]
        if isinstance(prediction, Tensor):
            return prediction.clamp(min=0).long()
        return prediction.clip(min=0).astype("int64")

    @property
    def has_logits(self) -> bool:
        """Whether the logits were kept."""
        return "logits" in self._parts

    @property
    def ndim(self) -> int:
        """The number of axes, that of the classes included."""
        return int(self["columns"].ndim)

    def keys(self) -> KeysView[str]:
        """The names of the parts: "columns", "classes" (how many, for each sample), and "logits" if they were kept."""
        return self._parts.keys()

    def values(self) -> ValuesView[Any]:
        """The parts."""
        return self._parts.values()

    def items(self) -> ItemsView[str, Any]:
        """The parts with their names."""
        return self._parts.items()

    def __getitem__(self, key: Any) -> Any:
        return self._parts[key] if isinstance(key, str) else self._logits("indexing")[key]

    def __len__(self) -> int:
        return len(self["columns"])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._logits("iteration"))

    def __contains__(self, value: object) -> bool:
        return value in self._parts if isinstance(value, str) else value in self._logits("a search")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pickle, copy and NumPy look for such names, and do not need them
            raise AttributeError(name)
        if not self.has_logits:
            raise AttributeError(f"{name!r} needs the logits: {REMEDY}")
        return getattr(self["logits"], name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = numpy.asarray(self._logits("an array"), dtype=dtype)
        return array.copy() if copy else array

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        inputs = tuple(numpy.asarray(x) if isinstance(x, Predictions) else x for x in inputs)
        return getattr(ufunc, method)(*inputs, **options)

    @classmethod
    def __torch_function__(cls, function: Any, kinds: Any, args: Any = (), options: Any = None) -> Any:
        if function is torch.argmax and args:
            return args[0].argmax(*args[1:], **(options or {}))
        raise TypeError(
            f"torch.{function.__name__} takes tensors, got Predictions; give it predictions['logits'] as a tensor, "
            "which are kept with BoCTrainerMetrics(keep_logits=True)"
        )

    def __repr__(self) -> str:
        what = f"logits of shape {tuple(self['logits'].shape)}" if self.has_logits else "argmax(-1) alone"
        return f"Predictions({len(self)} samples, {what})"

    def _logits(self, what: str) -> Any:
        if not self.has_logits:
            raise TypeError(f"{what} needs the logits: {REMEDY}")
        return self._parts["logits"]


def first_of(value: Any) -> Any:
    """The first of several outputs or labels; None if there are none. A single value is returned unchanged."""
    return next(iter(value), None) if isinstance(value, tuple | list) else value


def checked_predictions(predictions: Any) -> Predictions:
    """The `Predictions` in what Trainer gathered; an error if there are none."""
    first = first_of(predictions)
    if isinstance(first, Predictions):
        return first
    raise TypeError(
        f"expected Predictions from BoCTrainerMetrics.preprocess, got {describe(predictions)}; "
        "give Trainer both of its arguments: Trainer(model, ..., **boc.arguments(model))"
    )


def without_columns(predictions: Any) -> Any:
    """The predictions without our columns: what Trainer would give to your own function, if the logits were kept."""
    if isinstance(predictions, list):
        return [without_columns(batch) for batch in predictions]
    if isinstance(predictions, tuple):
        return (without_columns(predictions[0]), *predictions[1:])
    return predictions["logits"] if predictions.has_logits else predictions
