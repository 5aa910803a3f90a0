"""Which process this is, as launchers tell it."""

import pytest
import torch

from tests.nn.models import linear
from torch_boc import BoCPredictor
from torch_boc.inference.distributed import Rank, check_shard, find_rank, local_device

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE")
NAMES += ("SLURM_LOCALID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS")
TORCHRUN = {"RANK": 5, "WORLD_SIZE": 8, "LOCAL_RANK": 1, "GROUP_RANK": 1, "LOCAL_WORLD_SIZE": 4}
SLURM = {"SLURM_PROCID": 3, "SLURM_NTASKS": 6, "SLURM_STEP_NUM_TASKS": 6}
LIGHTNING = {"LOCAL_RANK": 2, "WORLD_SIZE": 4}
CASES = {
    "nothing": ({}, (0, 1)),
    "torchrun": (TORCHRUN, (5, 8)),
    "srun": (SLURM, (3, 6)),
    "a step of a job": (SLURM | {"SLURM_NTASKS": 64}, (3, 6)),
    "a batch script of one task": ({"SLURM_PROCID": 0, "SLURM_NTASKS": 1}, (0, 1)),
    "a step of one task": ({"SLURM_PROCID": 0, "SLURM_NTASKS": 4, "SLURM_STEP_NUM_TASKS": 1}, (0, 1)),
    "torchrun in srun": (TORCHRUN | SLURM, (5, 8)),
    "Lightning": (LIGHTNING | {"NODE_RANK": 0}, (2, 4)),
    "Lightning without a node": (LIGHTNING, (2, 4)),
    "Lightning on two nodes": (LIGHTNING | {"NODE_RANK": 1, "LOCAL_WORLD_SIZE": 4, "WORLD_SIZE": 8}, (6, 8)),
    "srun with WORLD_SIZE": (SLURM | {"WORLD_SIZE": 6}, (3, 6)),
    "one process": ({"WORLD_SIZE": 1}, (0, 1)),
    "no world": ({"RANK": 1}, "expected a number as WORLD_SIZE in the environment, got none; give shard="),
    "no rank": ({"WORLD_SIZE": 2}, "expected RANK in the environment next to WORLD_SIZE"),
    "too large": ({"RANK": 2, "WORLD_SIZE": 2}, "expected a rank from 0 to 1 as RANK, got 2"),
    "no number": ({"RANK": "one", "WORLD_SIZE": 2}, "expected a number as RANK in the environment, got 'one'"),
    "Lightning's second node": (LIGHTNING | {"NODE_RANK": 1}, r"expected LOCAL_WORLD_SIZE or .* node 1.*shard=\(rank"),
    "a batch script": ({"SLURM_PROCID": 0, "SLURM_NTASKS": 4}, "as srun sets it, got 4 tasks of a job only; start the"),
    "no tasks": ({"SLURM_PROCID": 0}, "a number as SLURM_STEP_NUM_TASKS or SLURM_NTASKS in"),
}


def launch(monkeypatch, variables):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize(("variables", "found"), CASES.values(), ids=CASES.keys())
def test_auto_asks_the_launcher(variables, found, monkeypatch):
    launch(monkeypatch, variables)
    if isinstance(found, tuple):
        assert find_rank("auto") == found
        return
    with pytest.raises(ValueError, match=found):
        find_rank("auto")


def test_what_comes_before_the_launcher(monkeypatch):
    launch(monkeypatch, TORCHRUN)
    assert find_rank(check_shard((0, 2))) == Rank(0, 2)
    for name, value in {"is_initialized": True, "get_rank": 1, "get_world_size": 3}.items():
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    assert find_rank("auto") == (1, 3)


@pytest.mark.parametrize("shard", ["rank", (2, 2), (-1, 2), (0, 0), (0,), (0, 1, 2), 3, (0.0, 2), ("0", "2"), True])
def test_bad_shards(shard):
    with pytest.raises(ValueError, match=r"expected shard as None, 'auto' or \(rank, number of processes\)"):
        BoCPredictor(linear(), shard=shard)


@pytest.mark.parametrize(
    ("device", "variables", "gpus", "current", "found"),
    [
        ("cuda", {"LOCAL_RANK": 3}, 8, 0, "cuda:3"),
        ("cuda", {"SLURM_LOCALID": 2}, 4, 0, "cuda:2"),
        ("cuda", {"LOCAL_RANK": 3}, 1, 0, "cuda:0"),
        ("cuda", {"LOCAL_RANK": 3}, 8, 5, "cuda:5"),
        ("cuda:1", {"LOCAL_RANK": 3}, 8, 0, "cuda:1"),
        ("cuda", {}, 8, 0, "cuda"),
        ("cpu", {"LOCAL_RANK": 3}, 8, 0, "cpu"),
    ],
    ids=["torchrun", "srun", "one GPU visible", "chosen before", "an index", "no launcher", "CPU"],
)
def test_each_process_has_its_gpu(monkeypatch, device, variables, gpus, current, found):
    launch(monkeypatch, variables)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    assert local_device(device) == torch.device(found)
