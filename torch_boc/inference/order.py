"""Which sample of the data set each row of a loader is: known for loaders that keep an order, and never guessed."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, SequentialSampler

from .batches import Batch, BatchReader
from .processes import check_padding

ENDED = (
    "expected a batch for all indices of the sampler, got fewer; a StopIteration inside of the data set ends a loader "
    "early: let the data set raise another error"
)


class Places(NamedTuple):
    """What a sampler gives.

    Attributes:
        indices: the indices of the samples in the data set, in the order of the sampler, padding included.
        kept: how many of them are no padding. The padding of a `DistributedSampler` is at the end of each process.
    """

    indices: Sequence[int]
    kept: int


class Numbered(NamedTuple):
    """A batch, and the indices of its samples; None if the loader's order is not known."""

    indices: Tensor | None
    batch: Batch


def places_of(sampler: Any) -> Places | None:
    """The places of a sampler; None if they cannot be known before the samples are drawn.

    They are known for sequential and distributed samplers and for lists of indices, unless these count from the end.

    >>> places_of(DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
    Places(indices=range(1, 6, 2), kept=2)
    """
    if type(sampler) is SequentialSampler:
        return Places(range(len(sampler)), len(sampler))
    if type(sampler) is DistributedSampler:
        indices = list(sampler) if sampler.shuffle else range(sampler.rank, sampler.total_size, sampler.num_replicas)
        return Places(indices, count_kept(sampler))
    return Places(sampler, len(sampler)) if _lists_indices(sampler) else None


def _lists_indices(sampler: Any) -> bool:
    if isinstance(sampler, range):
        return not sampler or min(sampler[0], sampler[-1]) >= 0
    return isinstance(sampler, list | tuple) and all(type(x) is int and x >= 0 for x in sampler)


def count_kept(sampler: DistributedSampler[Any]) -> int:
    """How many samples of a process are no padding.

    A `DistributedSampler` repeats samples until all processes have equally many. Place i of a process is place
    rank + i * world of all processes, and it is padding if that is not smaller than the length of the data set.
    """
    if sampler.drop_last:
        return sampler.num_samples
    return len(range(sampler.rank, len(sampler.dataset), sampler.num_replicas))  # type: ignore[arg-type]


def check_order(loader: Any, id: str | None) -> None:
    """Raise if it cannot be known which samples the rows of a loader are, and no id says it, or if some come twice."""
    if _is_counted(loader) or _batches(loader):
        return
    if id is None:
        raise ValueError(
            f"expected a loader that keeps the order of its data set, got a DataLoader with {_reason(loader)}, so that "
            "it is not known which sample a row is; leave shuffle=True and other samplers out, or give the predictor "
            "id='name', the name of a column of the batch that says which sample it is"
        )
    check_padding(loader)


def number(loader: Iterable[Any], reader: BatchReader) -> Iterator[Numbered]:
    """The batches of a loader with the indices of their samples; the padding of a `DistributedSampler` is left out."""
    if _is_counted(loader):
        return _counted(_whole(loader), reader)
    places = _batches(loader)
    return _unknown(_whole(loader), reader) if places is None else number_by(loader, reader, places)


def number_by(loader: Iterable[Any], reader: BatchReader, places: Iterable[Places]) -> Iterator[Numbered]:
    """The batches of a loader with the given places, one for each batch."""
    left = iter(places)
    for raw in loader:
        batch, place = reader.read(raw), next(left, Places((), 0))
        if batch.size != len(place.indices):
            raise ValueError(
                f"expected {len(place.indices)} samples in a batch of the loader, got {batch.size}, so that it is not "
                "known which sample a row is; let its collate_fn keep every sample (torch.utils.data.Subset leaves "
                "samples out), or give iter(loader), whose rows are counted"
            )
        if place.kept < batch.size:
            batch = batch.piece(0, place.kept)
        yield Numbered(torch.tensor(place.indices[: place.kept], dtype=torch.int64), batch)
    if next(left, None) is not None:
        raise ValueError(ENDED)


def _whole(loader: Iterable[Any]) -> Iterator[Any]:
    """The batches of a loader. If it is known how many there are, fewer are an error."""
    batches = 0
    for raw in loader:
        batches += 1
        yield raw
    if batches < _least_batches(loader):
        raise ValueError(ENDED)


def _least_batches(loader: Any) -> int:
    """How many batches a loader has at least; 0 if that is not known, as with samplers of the user's own."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset) or not _is_plain(loader):
        return 0
    sampler: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    inner = sampler.sampler if type(sampler) is BatchSampler else sampler
    return len(sampler) if type(inner).__module__.startswith("torch.utils.data.") else 0


def _is_plain(loader: DataLoader[Any]) -> bool:
    """Whether the loader yields the batches of its sampler: a class that inherits from it may yield others."""
    return type(loader).__iter__ is DataLoader.__iter__


def _counted(loader: Iterable[Any], reader: BatchReader) -> Iterator[Numbered]:
    seen = 0
    for raw in loader:
        batch = reader.read(raw)
        yield Numbered(torch.arange(seen, seen + batch.size), batch)
        seen += batch.size


def _unknown(loader: Iterable[Any], reader: BatchReader) -> Iterator[Numbered]:
    return (Numbered(None, reader.read(raw)) for raw in loader)


def _is_counted(loader: Any) -> bool:
    """Whether a loader has no data set with indices: it is a plain iterable of batches, or its data set is."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return True
    # Without batching, each item of the data set is a batch of its own.
    return loader.batch_sampler is None and type(loader.sampler) is SequentialSampler and _keeps_order(loader)


def _batches(loader: Any) -> Iterator[Places] | None:
    """The places of each batch; None if they cannot be known."""
    # Without batching by the loader, a BatchSampler may give the data set lists of indices.
    sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    places = places_of(sampler.sampler) if type(sampler) is BatchSampler and _keeps_order(loader) else None
    return None if places is None else _cut(places, sampler.batch_size, sampler.drop_last)


def _cut(places: Places, size: int, drop_last: bool) -> Iterator[Places]:
    samples = len(places.indices)
    for start in range(0, samples - samples % size if drop_last else samples, size):
        indices = places.indices[start : start + size]
        yield Places(indices, min(len(indices), max(0, places.kept - start)))


def _reason(loader: Any) -> str:
    """Why the order of a loader is not known."""
    sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    sampler = sampler.sampler if type(sampler) is BatchSampler else sampler
    if not _is_plain(loader):
        return "an __iter__ of its own"
    return type(sampler).__name__ if _keeps_order(loader) else "in_order=False"


def _keeps_order(loader: Any) -> bool:
    """Whether a loader yields the batches of its sampler in the order of the sampler."""
    return _is_plain(loader) and (loader.num_workers == 0 or getattr(loader, "in_order", True))
