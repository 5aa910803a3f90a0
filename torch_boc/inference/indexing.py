"""Which sample each row is: known for loaders that keep the order of their dataset, and never guessed."""

import math
import multiprocessing
import os
import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from operator import length_hint
from typing import Any

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
    default_collate,
)

from .batches import Batch, BatchReader
from .device import has_streams
from .distributed import Rank

# A process has about this many blocks, of at most this many samples: what is lost when it is killed is one block.
BLOCKS_PER_RANK, BLOCK_ROWS = 32, 2**17
SAMPLERS = (SequentialSampler, DistributedSampler)  # whose order is known, if they are no classes of the user's own
# By default a loader has at most this many workers, and none over data that pickle to more bytes than this.
MOST_WORKERS, MOST_BYTES = 4, 2**30  # the paths of 10 million images


def as_loader(
    data: Any, batch_size: int, num_workers: int | None = 0, device: torch.device | None = None
) -> Iterable[Any]:
    """A loader unchanged; for a dataset or a tensor of all inputs, a new `DataLoader` that keeps the order.

    Args:
        data: the loader, dataset or tensor.
        batch_size: how many samples come in a batch.
        num_workers: how many processes read a dataset; None for as many as `safe_workers` finds. Tensors need none.
        device: where the model runs. Workers' batches are pinned for a device that can copy while it computes.

    >>> [x.shape for (x,) in as_loader(torch.zeros(5, 2), batch_size=3)]
    [torch.Size([3, 2]), torch.Size([2, 2])]
    """
    if isinstance(data, Tensor) or type(data) is TensorDataset:
        tensors = (data,) if isinstance(data, Tensor) else data.tensors
        return DataLoader(_Rows(*tensors), batch_size, collate_fn=tuple)
    options: dict[str, Any] = {}
    if getattr(data, "format", None) is not None and hasattr(data, "with_format"):  # a dataset of Hugging Face
        data, options = data if data.format["type"] else data.with_format("torch"), {"collate_fn": _collate}
    if options or isinstance(data, Dataset):
        workers = safe_workers(data, device) if num_workers is None else num_workers
        pinned = workers > 0 and device is not None and has_streams(device)
        return DataLoader(data, batch_size, num_workers=workers, pin_memory=pinned, **options)
    if not isinstance(data, Iterable):
        hint = "; let it inherit from torch.utils.data.Dataset" if hasattr(data, "__getitem__") else ""
        raise TypeError(f"expected a loader, a dataset or a tensor, got {type(data).__name__}{hint}")
    return data


class _Rows(TensorDataset):
    """Tensors whose rows are read a batch at a time; one by one takes longer than a small model."""

    def __getitems__(self, indices: Sequence[int]) -> list[Tensor]:
        rows = torch.as_tensor([*indices])
        return [x[rows.to(x.device)] for x in self.tensors]


class _Checker(pickle.Pickler):
    """Refuses what worker processes cannot have copies of: open files, handles, tensors on a device."""

    def __init__(self) -> None:
        super().__init__(self)
        self.bytes = 0

    def write(self, part: Any) -> None:
        self.bytes += len(part)
        if self.bytes > MOST_BYTES:
            raise pickle.PicklingError("expected data on disk, got data in memory, which need no workers")

    def reducer_override(self, x: Any) -> Any:
        if isinstance(x, Tensor) and x.device.type != "cpu":
            raise pickle.PicklingError(f"expected tensors on the CPU, got one on {x.device}")
        return NotImplemented


def safe_workers(data: Any, device: torch.device | None) -> int:
    """How many worker processes may read a dataset without being asked for; 0 where that could fail.

    A model on the CPU needs the cores itself. In a notebook, in a script without `if __name__ == "__main__"` on systems
    that spawn processes, and for data that cannot be pickled, workers can fail.
    """
    started = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    unsafe = "ipykernel" in sys.modules or started != "fork"
    if device is None or device.type == "cpu" or unsafe or multiprocessing.current_process().daemon:
        return 0
    if isinstance(data, IterableDataset):
        return 0
    try:
        _Checker().dump(data)
    except Exception:  # of whatever class the data are
        return 0
    return max(0, min(MOST_WORKERS, len(os.sched_getaffinity(0)) - 1))


def has_own_memory(loader: Any) -> bool:
    """Whether each batch of a loader has memory of its own, even if it is pinned."""
    if type(loader) is not DataLoader:
        return False
    return bool(loader.num_workers or loader.collate_fn in (default_collate, _collate, tuple))


def _collate(rows: list[Any]) -> Any:
    """The rows of a dataset of Hugging Face as a batch, or an error with a remedy."""
    try:
        return default_collate(rows)
    except RuntimeError as error:
        raise ValueError(
            f"expected rows of one length, got others ({error}); tokenize with padding='max_length', or give "
            "DataLoader(data, batch_size, collate_fn=DataCollatorWithPadding(tokenizer))"
        ) from error


def count_kept(sampler: DistributedSampler[Any]) -> int:
    """How many samples of a process are no padding.

    A `DistributedSampler` repeats samples until all processes have equally many. Sample i of a process is number
    rank + i * world of all, and it is padding if that is not smaller than the length of the dataset. A
    sampler that drops the last samples has no padding, and may have fewer samples than this.
    """
    return len(range(sampler.rank, len(sampler.dataset), sampler.num_replicas))  # type: ignore[arg-type]


def count_samples(loader: Any) -> int | None:
    """How many samples a `DataLoader` will yield, without padding; None if that cannot be known."""
    samples = length_hint(loader.sampler, -1) if isinstance(loader, DataLoader) and loader.batch_size else -1
    if samples < 0:  # the sampler of an iterable dataset has no length
        return None
    samples -= samples % loader.batch_size if loader.drop_last else 0
    return min(samples, count_kept(loader.sampler)) if type(loader.sampler) is DistributedSampler else samples


def unknown_order(loader: Any) -> str:
    """Why it is not known which samples a loader yields; empty if it is known.

    Plain iterables of batches and iterable datasets are counted. The indices are known for sequential and distributed
    samplers and for lists of indices.
    """
    if not isinstance(loader, DataLoader):
        return ""
    if type(loader).__iter__ is not DataLoader.__iter__:  # a class that inherits from it may yield other batches
        return "an __iter__ of its own"
    if isinstance(loader.dataset, IterableDataset):
        return f"{loader.num_workers} workers that take turns" if loader.num_workers > 1 else ""
    if loader.num_workers and not loader.in_order:
        return "in_order=False"
    if type(loader.batch_sampler) is not BatchSampler:
        return type(loader.sampler if loader.batch_sampler is None else loader.batch_sampler).__name__
    sampler: Any = loader.batch_sampler.sampler
    listed = isinstance(sampler, list | range) and all(type(x) is int and x >= 0 for x in sampler)
    return "" if listed or type(sampler) in SAMPLERS else type(sampler).__name__


def with_indices(loader: Iterable[Any], reader: BatchReader) -> Iterator[Batch]:
    """The batches of a loader with the indices of their samples; the padding of a `DistributedSampler` is left out.

    An unknown order needs ids, and each sample once.
    """
    why = unknown_order(loader)
    if why and reader.id is None:
        raise ValueError(
            f"expected a loader that keeps the order of its dataset, got a DataLoader with {why}: it is not known "
            "which sample a row is; leave shuffle=True and other samplers out, or give the predictor id='name'"
        )
    batches: Any = getattr(loader, "batch_sampler", None)
    sampler: Any = getattr(loader if batches is None else batches, "sampler", None)
    padded = isinstance(sampler, DistributedSampler) and sampler.total_size > len(sampler.dataset)  # type: ignore[arg-type]
    if why and padded:
        raise ValueError(
            f"expected each sample once, got a {type(sampler).__name__} that repeats samples; give the predictor "
            "shard='auto' and the dataset itself, or the sampler drop_last=True"
        )
    counted = why or batches is None or isinstance(getattr(loader, "dataset", None), IterableDataset)
    kept = count_kept(sampler) if type(sampler) is DistributedSampler and not why else None
    return indexed_batches(loader, reader, None if counted else batches, kept=kept, ordered=not why)


def indexed_batches(
    loader: Any, reader: BatchReader, indices: Any = None, *, kept: int | None = None, ordered: bool = True
) -> Iterator[Batch]:
    """The batches of a loader, each with the column `index`, unless the user's id has this name.

    Args:
        loader: the loader.
        reader: reads its batches.
        indices: those of each batch, as a batch sampler yields them. By default samples are counted from 0.
        kept: how many samples are no padding, which comes at the end; by default all.
        ordered: whether the order is known; otherwise there is no index.
    """
    left, seen = iter(indices or ()), 0
    for raw in loader:
        batch = reader.read(raw)
        rows = range(seen, seen + batch.size) if indices is None else next(left, ())
        if batch.size != len(rows):
            raise ValueError(
                f"expected {len(rows)} samples in a batch of the loader, got {batch.size}; let its collate_fn keep "
                "every sample, because rows are numbered by the sampler, or give iter(loader), whose rows are counted"
            )
        if ordered:
            batch = batch._replace(columns={"index": torch.tensor(rows, dtype=torch.int64), **batch.columns})
        seen += batch.size
        yield batch if kept is None or seen <= kept else batch.piece(0, max(0, batch.size + kept - seen))
    if next(left, None) is not None:
        raise ValueError("expected a batch for all indices, got fewer; a StopIteration in a dataset ends a loader")


class SharedData:
    """A map-style dataset that several processes share, in blocks of samples.

    Args:
        data: the dataset, a tensor of all inputs, or a `DataLoader` over a dataset. Of a loader, the dataset, the
            batch size and the options of its workers are used, and which samples come is decided here; its sampler must
            be a `SequentialSampler` or a `DistributedSampler`.
        batch_size: the batch size if `data` is not a loader.
        num_workers: the same as for `as_loader`, as the device.
        device: where the model runs.

    Attributes:
        samples: how many there are.
        batch_size: how many come in a batch.
    """

    def __init__(
        self, data: Any, batch_size: int, num_workers: int | None = 0, device: torch.device | None = None
    ) -> None:
        loader: Any = as_loader(data, batch_size, num_workers, device)
        batches: Any = getattr(loader, "batch_sampler", None)
        sampler: Any = getattr(batches, "sampler", None)
        can_be_shared = (
            type(batches) is BatchSampler
            and type(loader).__iter__ is DataLoader.__iter__
            and type(sampler) in SAMPLERS
            and not (batches.drop_last or getattr(sampler, "drop_last", False))
        )
        if not can_be_shared:
            raise TypeError(
                "expected a map-style dataset, which processes share by index, or a plain DataLoader over one with "
                "batch_size=, shuffle=False, drop_last=False and no sampler but a DistributedSampler, got "
                f"{type(loader).__name__} over {type(getattr(loader, 'dataset', None)).__name__} with "
                f"{type(sampler).__name__}; give the dataset itself"
            )
        self.loader, self.samples, self.batch_size = loader, len(loader.dataset), int(batches.batch_size)

    def block_size(self, world: int) -> int:
        """How many samples a block has, for a new run with this many processes: a multiple of the batch size.

        Batches are then those of a single process, and the values the same to the last bit where the model's are.
        """
        rows = min(BLOCK_ROWS, math.ceil(self.samples / (BLOCKS_PER_RANK * world)))
        return max(1, math.ceil(rows / self.batch_size)) * self.batch_size

    def share(self, block: int, rank: Rank) -> list[range]:
        """The blocks of one process: every `world`-th. Without samples there is one empty block.

        If all processes are interrupted together, the blocks that are done are about the first, and any number of
        processes shares the rest evenly. If one process died, every `world`-th block is missing. A number of processes
        that has no common divisor with the earlier number shares these evenly; with another, some processes get none.
        """
        starts = range(0, max(self.samples, 1), block)
        return [range(start, min(start + block, self.samples)) for start in starts[rank.rank :: rank.world]]

    def batches(self, blocks: Sequence[range], reader: BatchReader) -> Iterator[Batch]:
        """The samples of some blocks, in batches of which none goes over the end of a block."""
        size = self.batch_size
        batches = [block[i : i + size] for block in blocks for i in range(0, len(block), size)]
        loader = copy(self.loader)
        vars(loader).update(batch_sampler=batches, _iterator=None)  # by assignment, DataLoader would refuse it
        return indexed_batches(loader, reader, batches)
