"""A data set in blocks of samples, and the loader of some of these blocks."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, SequentialSampler

from .batches import BatchReader
from .loaders import as_loader
from .order import Numbered, Places, number_by
from .passing import Passing, mark_samples
from .ranks import Rank

# A process has about this many blocks, of at most so many samples: what is lost when it is killed is one block.
BLOCKS_PER_RANK, BLOCK_ROWS = 32, 2**17
# How many samples the processes of a run compare before they write.
SPREAD = 16
# The options of a DataLoader that do not say which samples come in which order.
OPTIONS = (
    *("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn"),
    *("multiprocessing_context", "generator", "prefetch_factor", "pin_memory_device"),
)
WANTED = (
    "expected a map-style data set, or a plain DataLoader over one with batch_size=, shuffle=False, drop_last=False"
)


class BlockBatches:
    """A batch sampler: the samples of blocks in batches, of which none goes over the end of a block.

    >>> list(BlockBatches([range(0, 4), range(8, 11)], 3))
    [[0, 1, 2], [3], [8, 9, 10]]
    """

    def __init__(self, blocks: Sequence[Sequence[int]], size: int) -> None:
        self.blocks, self.size = blocks, size

    def __iter__(self) -> Iterator[list[int]]:
        for block in self.blocks:
            yield from (list(block[start : start + self.size]) for start in range(0, len(block), self.size))

    def __len__(self) -> int:
        return sum(math.ceil(len(block) / self.size) for block in self.blocks)


class ShardedData:
    """A map-style data set that several processes share.

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
        self._loader = _check_loader(as_loader(data, batch_size))
        self.samples = len(self._loader.dataset)  # type: ignore[arg-type]
        self.batch_size = int(self._loader.batch_size or 1)

    def block_size(self, world: int) -> int:
        """How many samples a block has, for a new run with so many processes: a multiple of the batch size.

        Batches are then those of a single process, so that the values are the same to the last bit where the model's
        are.
        """
        rows = min(BLOCK_ROWS, math.ceil(self.samples / (BLOCKS_PER_RANK * world)))
        return max(1, math.ceil(rows / self.batch_size)) * self.batch_size

    def numbered(
        self, blocks: Sequence[Sequence[int]], reader: BatchReader, *, size: int | None = None
    ) -> Iterator[Numbered]:
        """The samples of some blocks, in batches of `size`, by default the batch size."""
        batches = BlockBatches(blocks, self.batch_size if size is None else size)
        places: Iterable[Places] = (Places(indices, len(indices)) for indices in batches)
        return number_by(self._rebuilt(batches), reader, places)

    def fingerprint(self, reader: BatchReader) -> str:
        """A digest of a few samples from all over the data set; it differs if another process has another order.

        They are one batch, whatever the batch size is, because a collate_fn may fill up samples to the longest.
        """
        places, passing = {i * (self.samples - 1) // (SPREAD - 1) for i in range(SPREAD)}, Passing()
        for _, batch in self.numbered([sorted(places) if self.samples else []], reader, size=SPREAD):
            passing.add(mark_samples(batch).cpu())
        return f"{passing.so_far().inputs} {passing.so_far().targets}"

    def _rebuilt(self, batches: BlockBatches) -> DataLoader[Any]:
        options = {name: getattr(self._loader, name, None) for name in OPTIONS}
        given = {name: value for name, value in options.items() if value not in (None, "")}
        return DataLoader(self._loader.dataset, batch_sampler=batches, **given)


def share(blocks: Sequence[range], rank: Rank) -> Sequence[range]:
    """The blocks of one process: every `world`-th.

    If all processes are interrupted together, the blocks that are done are about the first, so that any number of
    processes shares the rest evenly. If one process died, every `world`-th block is missing. A number of processes that
    has no common divisor with the earlier number shares these evenly; with another number, some processes get none.
    """
    return blocks[rank.rank :: rank.world]


def cut(samples: int, size: int) -> Sequence[range]:
    """All blocks of a data set; without samples it is one empty block.

    >>> cut(5, 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [range(start, min(start + size, samples)) for start in range(0, max(samples, 1), size)]


def _check_loader(loader: Any) -> DataLoader[Any]:
    """Return a loader that can be rebuilt for a part of its data set, or raise."""
    if not isinstance(loader, DataLoader):
        raise TypeError(f"{WANTED}, because several processes share it by index, got {type(loader).__name__}")
    if isinstance(loader.dataset, IterableDataset):
        raise TypeError(
            f"{WANTED}, got the iterable data set {type(loader.dataset).__name__}, which has no indices to share; let "
            "it give each process its own samples, and write a file for each process without shard="
        )
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise TypeError(f"{WANTED}, got a {type(loader).__name__} with an __iter__ of its own; give its data set")
    got = _unsuitable(loader)
    if got:
        raise ValueError(f"{WANTED} (a DistributedSampler may stay), got {got}; give the data set itself")
    return loader


def _unsuitable(loader: DataLoader[Any]) -> str:
    """What is wrong with a loader; "" if nothing is."""
    sampler = loader.sampler
    if loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler:
        return "a loader with batch_size=None or a batch_sampler of its own"
    if type(sampler) not in (SequentialSampler, DistributedSampler):
        return f"a loader with {type(sampler).__name__}"
    if loader.drop_last or getattr(sampler, "drop_last", False):
        return "a loader with drop_last=True, which would leave samples out"
    source: Any = sampler.dataset if isinstance(sampler, DistributedSampler) else getattr(sampler, "data_source", ())
    if len(source) != len(loader.dataset):  # type: ignore[arg-type]
        return f"a sampler of {len(source)} samples for a data set of {len(loader.dataset)}"  # type: ignore[arg-type]
    return ""
