"""What a `DistributedSampler` means for a table: other processes have the other samples, and some samples twice."""

import warnings
from typing import Any

from torch.utils.data import DataLoader, DistributedSampler

REMEDY = "give the predictor shard='auto' and the data set itself, or the sampler drop_last=True"


def distributed_sampler(loader: Any) -> DistributedSampler[Any] | None:
    """The `DistributedSampler` of a loader, also if a batch sampler has it; None if there is none."""
    if not isinstance(loader, DataLoader):
        return None
    for sampler in (
        loader.sampler,
        getattr(loader.batch_sampler, "sampler", None),
        getattr(loader.sampler, "sampler", None),
    ):
        if isinstance(sampler, DistributedSampler):
            return sampler
    return None


def check_padding(loader: Any) -> None:
    """Raise if a sampler repeats samples, for a loader of which it cannot be known which samples these are."""
    sampler = distributed_sampler(loader)
    if sampler is None or sampler.drop_last:
        return
    padding = sampler.total_size - len(sampler.dataset)  # type: ignore[arg-type]
    if padding > 0:
        raise ValueError(
            f"expected each sample once, got a {type(sampler).__name__} that repeats {padding} samples, in a loader of "
            f"which it is not known where they are; {REMEDY}"
        )


def warn_of_others(loader: Any, stacklevel: int) -> None:
    """Warn that a file has the samples of one process only."""
    sampler = distributed_sampler(loader)
    if sampler is not None and sampler.num_replicas > 1:
        warnings.warn(
            f"this file has the samples of process {sampler.rank + 1} of {sampler.num_replicas} only; with "
            "shard='auto' all processes write one folder",
            stacklevel=stacklevel + 1,
        )
