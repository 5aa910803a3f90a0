"""Loaders made from data sets and tensors, and the length of a loader."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from .order import count_kept


def as_loader(data: Any, batch_size: int) -> Iterable[Any]:
    """A loader unchanged; for a data set or a tensor of all inputs, a new `DataLoader` that keeps the order.

    >>> [x.shape for (x,) in as_loader(torch.zeros(5, 2), batch_size=3)]
    [torch.Size([3, 2]), torch.Size([2, 2])]
    """
    if isinstance(data, Tensor):
        return DataLoader(TensorDataset(data), batch_size)
    if getattr(data, "format", None) is not None and hasattr(data, "with_format"):  # a data set of Hugging Face
        return DataLoader(data if data.format["type"] else data.with_format("torch"), batch_size)
    if isinstance(data, Dataset):
        return DataLoader(data, batch_size)
    if not isinstance(data, Iterable):
        hint = "; let it inherit from torch.utils.data.Dataset" if hasattr(data, "__getitem__") else ""
        raise TypeError(f"expected a loader, a data set or a tensor, got {type(data).__name__}{hint}")
    return data


def count_samples(loader: Any) -> int | None:
    """How many samples a `DataLoader` will yield, without padding; None if that cannot be known."""
    if not isinstance(loader, DataLoader) or loader.batch_size is None:
        return None
    try:
        samples = len(loader.sampler)  # type: ignore[arg-type]
    except TypeError:  # an iterable data set
        return None
    samples -= samples % loader.batch_size if loader.drop_last else 0
    return min(samples, count_kept(loader.sampler)) if type(loader.sampler) is DistributedSampler else samples


def describe_loader(loader: Any) -> dict[str, object]:
    """The number of samples, and, if it is not known, the number of batches."""
    samples = count_samples(loader)
    return {"samples": samples} if samples is not None else {"samples": None, "batches": count_batches(loader)}


def count_batches(loader: Any) -> int | None:
    """How many batches a loader will yield; None if it does not say."""
    try:
        return len(loader)
    except TypeError:
        return None
