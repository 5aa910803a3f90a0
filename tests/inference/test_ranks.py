"""Which process this is, as launchers tell it."""

import pytest
import torch

from tests.nn.models import linear
from torch_boc import BoCPredictor
from torch_boc.inference.ranks import Rank, check_shard, find_rank

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE")
NAMES += ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS")


@pytest.fixture
def launched(monkeypatch):
    """Sets the environment of a launcher."""

    def set_variables(**variables):
        for name in NAMES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        return find_rank("auto")

    return set_variables


TORCHRUN = {"RANK": 5, "WORLD_SIZE": 8, "LOCAL_RANK": 1, "GROUP_RANK": 1, "LOCAL_WORLD_SIZE": 4}
SLURM = {"SLURM_PROCID": 3, "SLURM_NTASKS": 6, "SLURM_STEP_NUM_TASKS": 6}
FOUND = {
    "nothing": ({}, (0, 1)),
    "torchrun": (TORCHRUN, (5, 8)),
    "srun": (SLURM, (3, 6)),
    "a step of a job": (SLURM | {"SLURM_NTASKS": 64}, (3, 6)),
    "a batch script of one task": ({"SLURM_PROCID": 0, "SLURM_NTASKS": 1}, (0, 1)),
    "a step of one task": ({"SLURM_PROCID": 0, "SLURM_NTASKS": 4, "SLURM_STEP_NUM_TASKS": 1}, (0, 1)),
    "torchrun in srun": (TORCHRUN | SLURM, (5, 8)),
    "Lightning": ({"LOCAL_RANK": 2, "NODE_RANK": 0, "WORLD_SIZE": 4}, (2, 4)),
    "Lightning without a node": ({"LOCAL_RANK": 2, "WORLD_SIZE": 4}, (2, 4)),
    "Lightning on two nodes": ({"LOCAL_RANK": 2, "NODE_RANK": 1, "LOCAL_WORLD_SIZE": 4, "WORLD_SIZE": 8}, (6, 8)),
    "srun with WORLD_SIZE": (SLURM | {"WORLD_SIZE": 6}, (3, 6)),
    "one process": ({"WORLD_SIZE": 1}, (0, 1)),
}
BAD = {
    "no world": ({"RANK": 1}, "expected a number as WORLD_SIZE in the environment, got none; give shard="),
    "no rank": ({"WORLD_SIZE": 2}, "expected RANK in the environment beside WORLD_SIZE"),
    "too large": ({"RANK": 2, "WORLD_SIZE": 2}, "expected a rank from 0 to 1 as RANK, got 2"),
    "negative": ({"RANK": -1, "WORLD_SIZE": 2}, "expected a rank from 0 to 1 as RANK, got -1"),
    "no number": ({"RANK": "one", "WORLD_SIZE": 2}, "expected a number as RANK in the environment, got 'one'"),
    "no number of processes": ({"WORLD_SIZE": "two"}, "expected a number as WORLD_SIZE in the environment, got 'two'"),
    "Lightning's second node": (
        {"LOCAL_RANK": 0, "NODE_RANK": 1, "WORLD_SIZE": 4},
        r"expected LOCAL_WORLD_SIZE or RANK in the environment of node 1.*shard=\(rank, number",
    ),
    "after Lightning": ({"LOCAL_RANK": 0, "NODE_RANK": 0}, "a number as WORLD_SIZE in the environment, got none"),
    "a batch script": (
        {"SLURM_PROCID": 0, "SLURM_NTASKS": 4},
        "as srun sets it, got 4 tasks of a job only; start the processes with srun, or give shard=None",
    ),
    "no tasks": ({"SLURM_PROCID": 0}, "a number as SLURM_STEP_NUM_TASKS or SLURM_NTASKS in"),
}


@pytest.mark.parametrize(("variables", "rank"), FOUND.values(), ids=FOUND.keys())
def test_found(variables, rank, launched):
    assert launched(**variables) == rank


@pytest.mark.parametrize(("variables", "message"), BAD.values(), ids=BAD.keys())
def test_not_found(variables, message, launched):
    with pytest.raises(ValueError, match=message):
        launched(**variables)


def test_a_process_group_comes_first(launched, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    assert launched(**TORCHRUN) == (1, 3)


def test_the_given_rank_counts(launched):
    launched(**TORCHRUN)
    assert find_rank(check_shard((0, 2))) == Rank(0, 2)
    assert check_shard(None) is None


@pytest.mark.parametrize("shard", ["rank", (2, 2), (-1, 2), (0, 0), (0,), (0, 1, 2), 3, (0.0, 2), ("0", "2"), True])
def test_bad_shards(shard):
    with pytest.raises(ValueError, match=r"expected shard as None, 'auto' or \(rank, number of processes\)"):
        BoCPredictor(linear(), shard=shard)
