"""Which of several processes this one is."""

import os
from typing import Any, NamedTuple

import torch
from torch import distributed

LAUNCHERS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")  # the rank's name in the environment of torchrun, Lightning, srun
REMEDY = "give shard=(rank, number of processes), or shard=None in a single process"


class Rank(NamedTuple):
    """A process, counted from 0, and the number of processes."""

    rank: int
    world: int


def check_shard(shard: Any) -> str | Rank | None:
    """Return `shard` if it is None, "auto" or (rank, number of processes); otherwise raise.

    >>> check_shard((1, 3))
    Rank(rank=1, world=3)
    """
    if shard is None or (isinstance(shard, str) and shard == "auto"):
        return shard
    whole = isinstance(shard, tuple | list) and len(shard) == 2 and all(type(x) is int for x in shard)
    if not whole or not 0 <= shard[0] < shard[1]:
        raise ValueError(f"expected shard as None, 'auto' or (rank, number of processes), got {shard!r}")
    return Rank(*shard)


def find_rank(shard: str | Rank) -> Rank:
    """The rank that was given, or that of this process, as the launcher tells it.

    "auto" asks, in this order: an initialised `torch.distributed`; RANK and WORLD_SIZE (torchrun); LOCAL_RANK,
    NODE_RANK and WORLD_SIZE (Lightning); SLURM_PROCID and SLURM_STEP_NUM_TASKS (srun). If there is none of these, this
    is the only process. A batch script of Slurm with several tasks that was not started by srun is an error.
    """
    if isinstance(shard, Rank):
        return shard
    if distributed.is_available() and distributed.is_initialized():
        return Rank(distributed.get_rank(), distributed.get_world_size())
    name = next(filter(os.environ.__contains__, LAUNCHERS), None)
    if name is None:
        if "WORLD_SIZE" in os.environ and _number("WORLD_SIZE") != 1:
            raise ValueError(f"expected RANK in the environment next to WORLD_SIZE, got none; {REMEDY}")
        return Rank(0, 1)
    slurm = name == "SLURM_PROCID"
    rank, world = _number(name), _number(*(("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") if slurm else ("WORLD_SIZE",)))
    if name == "LOCAL_RANK" and "NODE_RANK" in os.environ and (node := _number("NODE_RANK")):
        if "LOCAL_WORLD_SIZE" not in os.environ:  # Lightning has the number of nodes in its own settings only
            raise ValueError(f"expected LOCAL_WORLD_SIZE or RANK in the environment of node {node}; {REMEDY}")
        rank += node * _number("LOCAL_WORLD_SIZE")
    # Slurm tells a batch script that it is process 0 of all tasks, but no others were started.
    if slurm and "SLURM_STEP_NUM_TASKS" not in os.environ and world > 1:
        raise ValueError(
            f"expected SLURM_STEP_NUM_TASKS in the environment, as srun sets it, got {world} tasks of a job only; "
            "start the processes with srun, or give shard=None"
        )
    if not 0 <= rank < world:
        raise ValueError(f"expected a rank from 0 to {world - 1} as {name}, got {rank}; {REMEDY}")
    return Rank(rank, world)


def local_device(device: torch.device | str | int) -> torch.device:
    """The GPU of this process, where `device` names only their type: one GPU per process, in the order of LOCAL_RANK.

    A process that has chosen its GPU before, or sees only one, keeps it.
    """
    device = torch.device(device)
    local = next(filter(None, map(os.environ.get, ("LOCAL_RANK", "SLURM_LOCALID"))), "")
    if device.type == "cpu" or ":" in str(device) or not local.isdecimal():
        return device
    gpus = torch.get_device_module(device)
    chosen = gpus.current_device() or int(local) % max(gpus.device_count(), 1)
    return torch.device(device.type, chosen)


def _number(*names: str) -> int:
    """The first of these variables of the environment that is set, as a number."""
    text = next(filter(None, map(os.environ.get, names)), None)
    try:
        return int(text or "")
    except ValueError:
        got = "none" if text is None else repr(text)
        raise ValueError(f"expected a number as {' or '.join(names)} in the environment, got {got}; {REMEDY}") from None
