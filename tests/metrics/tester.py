"""What every metric must do, whatever it measures."""

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

Batch = tuple[Any, ...]


def check_metric(
    make: Callable[[], Metric], batches: Sequence[Batch], expected: Mapping[str, Tensor] | Tensor, *, atol: float = 1e-9
) -> None:
    """The metric gives `expected` over all batches, however they are cut, ordered, copied, merged or stored."""
    for result in (
        _after(make(), batches),
        _after(make(), batches[::-1]),
        _after(make(), [piece for batch in batches for piece in _halves(batch)]),
        _after(make(), [*batches[:1], _nothing(batches[0]), *batches[1:]]),
        _after_forward(make(), batches),
        _after_copy(make(), batches, lambda metric: pickle.loads(pickle.dumps(metric))),
        _after_copy(make(), batches, lambda metric: metric.clone()),
        _after_merge(make, batches),
        _after_reset(make(), batches),
    ):
        assert_same(result, expected, atol)


def assert_same(actual: Any, expected: Any, atol: float = 1e-9) -> None:
    """The same keys, and values that differ by no more than `atol` and no relative error."""
    if isinstance(expected, Mapping):
        assert actual.keys() == expected.keys()
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0, equal_nan=True)


def _after(metric: Metric, batches: Sequence[Batch]) -> Any:
    for batch in batches:
        metric.update(*batch)
    return metric.compute()


def _after_forward(metric: Metric, batches: Sequence[Batch]) -> Any:
    """`forward` gives the value of its own batch, and adds it to the rest."""
    for batch in batches:
        alone = metric.clone()
        alone.reset()
        assert_same(metric(*batch), _after(alone, [batch]))
    return metric.compute()


def _after_copy(metric: Metric, batches: Sequence[Batch], copy: Callable[[Metric], Metric]) -> Any:
    metric.update(*batches[0])
    other = copy(metric)
    metric.update(*batches[0])  # must not reach the copy
    return _after(other, batches[1:])


def _after_merge(make: Callable[[], Metric], batches: Sequence[Batch]) -> Any:
    first, second = make(), make()
    first.update(*batches[0])
    _after(second, batches[1:])
    first.merge_state(second)
    return first.compute()


def _after_reset(metric: Metric, batches: Sequence[Batch]) -> Any:
    _after(metric, batches[:1])
    metric.reset()
    return _after(metric, batches)


def _halves(batch: Batch) -> list[Batch]:
    size = len(batch[0])
    return [_slice(batch, slice(0, size // 2)), _slice(batch, slice(size // 2, size))]


def _nothing(batch: Batch) -> Batch:
    return _slice(batch, slice(0, 0))


def _slice(batch: Batch, part: slice) -> Batch:
    return tuple(x[part] if isinstance(x, Tensor) and x.ndim else x for x in batch)
