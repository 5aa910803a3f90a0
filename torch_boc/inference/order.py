"""Which sample each row is: known for loaders that keep the order of their data set, and never guessed."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
    TensorDataset,
)

from .batches import Batch, BatchReader
from .ranks import Rank

# A process has about this many blocks, of at most so many samples: what is lost when it is killed is one block.
BLOCKS_PER_RANK, BLOCK_ROWS = 32, 2**17
# The options of a DataLoader that do not say which samples come in which order.
OPTIONS = (
    *("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn"),
    *("multiprocessing_context", "generator", "prefetch_factor", "pin_memory_device"),
)
ENDED = (
    "expected a batch for all indices of the sampler, got fewer; a StopIteration inside of the data set ends a loader "
    "early: let the data set raise another error"
)


class Places(NamedTuple):
    """The indices of a batch in the data set, and how many of them are no padding, which stands at the end."""

    indices: Sequence[int]
    kept: int


class Numbered(NamedTuple):
    """A batch, and the indices of its samples; None if the loader's order is not known."""

    indices: Tensor | None
    batch: Batch


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


def count_kept(sampler: DistributedSampler[Any]) -> int:
    """How many samples of a process are no padding.

    A `DistributedSampler` repeats samples until all processes have equally many. Place i of a process is place
    rank + i * world of all processes, and it is padding if that is not smaller than the length of the data set.
    """
    if sampler.drop_last:
        return sampler.num_samples
    return len(range(sampler.rank, len(sampler.dataset), sampler.num_replicas))  # type: ignore[arg-type]


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


def number(loader: Iterable[Any], reader: BatchReader) -> Iterator[Numbered]:
    """The batches of a loader with the indices of their samples; the padding of a `DistributedSampler` is left out.

    Plain iterables of batches and iterable data sets are counted. An unknown order needs ids, and each sample once.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return _counted(loader, reader, known=True)
    places = _places(loader)
    if places is not None:
        return number_by(loader, reader, places)
    # Without batching by the loader, each item of the data set is a batch of its own.
    known = loader.batch_sampler is None and type(loader.sampler) is SequentialSampler and _keeps_order(loader)
    if not known and reader.id is None:
        reason = type(_sampler(loader)).__name__ if _keeps_order(loader) else "in_order=False"
        reason = reason if _is_plain(loader) else "an __iter__ of its own"
        raise ValueError(
            f"expected a loader that keeps the order of its data set, got a DataLoader with {reason}, so that it is "
            "not known which sample a row is; leave shuffle=True and other samplers out, or give the predictor "
            "id='name', the name of a column of the batch that says which sample it is"
        )
    sampler = distributed_sampler(loader)
    if sampler is not None and not sampler.drop_last and sampler.total_size > len(sampler.dataset):  # type: ignore[arg-type]
        raise ValueError(
            f"expected each sample once, got a {type(sampler).__name__} that repeats samples, in a loader of which it "
            "is not known where they are; give the predictor shard='auto' and the data set itself, or the sampler "
            "drop_last=True"
        )
    return _counted(loader, reader, known=known)


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


def _counted(loader: Iterable[Any], reader: BatchReader, *, known: bool) -> Iterator[Numbered]:
    """The batches with indices from 0 on, or without indices. Fewer batches than torch's sampler has are an error."""
    seen = batches = 0
    for raw in loader:
        batch, batches = reader.read(raw), batches + 1
        yield Numbered(torch.arange(seen, seen + batch.size) if known else None, batch)
        seen += batch.size
    if isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset) and _is_plain(loader):
        is_torchs = type(_sampler(loader)).__module__.startswith("torch.utils.data.")
        if is_torchs and batches < len(loader):
            raise ValueError(ENDED)


def _places(loader: DataLoader[Any]) -> Iterator[Places] | None:
    """The places of each batch; None if they cannot be known before the samples are drawn.

    They are known for sequential and distributed samplers and for lists of indices, unless these count from the end.
    """
    # Without batching by the loader, a BatchSampler may give the data set lists of indices.
    batches: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    sampler: Any = _sampler(loader)
    if type(batches) is not BatchSampler or not _keeps_order(loader):
        return None
    indices: Sequence[int]
    if type(sampler) is SequentialSampler:
        indices = range(len(sampler))
    elif type(sampler) is DistributedSampler:
        indices = list(sampler) if sampler.shuffle else range(sampler.rank, sampler.total_size, sampler.num_replicas)
    elif isinstance(sampler, list | tuple | range) and all(type(x) is int and x >= 0 for x in sampler):
        indices = sampler
    else:
        return None
    kept = count_kept(sampler) if type(sampler) is DistributedSampler else len(indices)
    size, stop = batches.batch_size, len(indices)
    stop -= stop % size if batches.drop_last else 0
    return (Places(indices[i : i + size], min(size, max(0, kept - i))) for i in range(0, stop, size))


def _sampler(loader: DataLoader[Any]) -> Any:
    """The sampler of single samples; that of batches if it is not torch's own."""
    sampler: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    return sampler.sampler if type(sampler) is BatchSampler else sampler


def _is_plain(loader: DataLoader[Any]) -> bool:
    """Whether the loader yields the batches of its sampler: a class that inherits from it may yield others."""
    return type(loader).__iter__ is DataLoader.__iter__


def _keeps_order(loader: DataLoader[Any]) -> bool:
    """Whether a loader yields the batches of its sampler in the order of the sampler."""
    return _is_plain(loader) and (loader.num_workers == 0 or getattr(loader, "in_order", True))


def distributed_sampler(loader: Any) -> DistributedSampler[Any] | None:
    """The `DistributedSampler` of a loader, also if a batch sampler has it; None if there is none."""
    batches, sampler = getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)
    for found in (sampler, getattr(batches, "sampler", None), getattr(sampler, "sampler", None)):
        if isinstance(found, DistributedSampler):
            return found
    return None


class BlockBatches:
    """A batch sampler: the samples of blocks in batches, of which none goes over the end of a block.

    >>> list(BlockBatches([range(0, 4), range(8, 11)], 3))
    [[0, 1, 2], [3], [8, 9, 10]]
    """

    def __init__(self, blocks: Sequence[range], size: int) -> None:
        self.blocks, self.size = blocks, size

    def __iter__(self) -> Iterator[list[int]]:
        for block in self.blocks:
            yield from (list(block[start : start + self.size]) for start in range(0, len(block), self.size))

    def __len__(self) -> int:
        return sum(math.ceil(len(block) / self.size) for block in self.blocks)


class SharedData:
    """A map-style data set that several processes share, in blocks of samples.

    Args:
        data: the data set, a tensor of all inputs, or a `DataLoader` over a data set. Of a loader, the data set, the
            batch size and the options of its workers are used, and which samples come is decided here; its sampler must
            be a `SequentialSampler` or a `DistributedSampler`.
        batch_size: the batch size if `data` is not a loader.

    Attributes:
        samples: how many there are.
        batch_size: how many come in a batch.
    """

    def __init__(self, data: Any, batch_size: int) -> None:
        loader: Any = as_loader(data, batch_size)
        batches: Any = getattr(loader, "batch_sampler", None)
        sampler: Any = getattr(batches, "sampler", None)
        source = sampler.data_source if type(sampler) is SequentialSampler else getattr(sampler, "dataset", ())
        can_be_shared = (
            type(batches) is BatchSampler
            and _is_plain(loader)
            and type(sampler) in (SequentialSampler, DistributedSampler)
            and not (batches.drop_last or getattr(sampler, "drop_last", False))
            and len(source) == len(loader.dataset)
        )
        if not can_be_shared:
            data_set = type(getattr(loader, "dataset", None)).__name__
            raise TypeError(
                "expected a map-style data set, which processes share by index, or a plain DataLoader over one with "
                "batch_size=, shuffle=False, drop_last=False and no sampler but a DistributedSampler, got "
                f"{type(loader).__name__} over {data_set} with {type(sampler).__name__}; give the data set itself"
            )
        self._loader, self.samples, self.batch_size = loader, len(loader.dataset), int(batches.batch_size)

    def block_size(self, world: int) -> int:
        """How many samples a block has, for a new run with so many processes: a multiple of the batch size.

        Batches are then those of a single process, so that the values are the same to the last bit where the model's
        are.
        """
        rows = min(BLOCK_ROWS, math.ceil(self.samples / (BLOCKS_PER_RANK * world)))
        return max(1, math.ceil(rows / self.batch_size)) * self.batch_size

    def share(self, block: int, rank: Rank) -> list[range]:
        """The blocks of one process: every `world`-th. Without samples there is one empty block.

        If all processes are interrupted together, the blocks that are done are about the first, so that any number of
        processes shares the rest evenly. If one process died, every `world`-th block is missing. A number of processes
        that has no common divisor with the earlier number shares these evenly; with another, some processes get none.
        """
        starts = range(0, max(self.samples, 1), block)
        return [range(start, min(start + block, self.samples)) for start in starts[rank.rank :: rank.world]]

    def numbered(self, blocks: Sequence[range], reader: BatchReader) -> Iterator[Numbered]:
        """The samples of some blocks, in batches of which none goes over the end of a block."""
        batches = BlockBatches(blocks, self.batch_size)
        options = {name: getattr(self._loader, name, None) for name in OPTIONS}
        given = {name: value for name, value in options.items() if value not in (None, "")}
        loader: DataLoader[Any] = DataLoader(self._loader.dataset, batch_sampler=batches, **given)
        return number_by(loader, reader, (Places(indices, len(indices)) for indices in batches))
