"""Two processes, one of which may be without samples, count what one process counts, bit for bit."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.nn.test_conformal import KINDS, calibrated, held_out, new
from torch_boc import ConformalTest

SHARES = {"uneven": (slice(0, 123), slice(123, None)), "one empty": (slice(0, 0), slice(0, None))}


def work(rank: int, port: int, folder: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    found = {}
    for share, places in SHARES.items():
        for name, options in KINDS.items():
            test = ConformalTest(**options)
            if len(own := held_out()[places[rank]]):
                test.update(own)
            before = test.counts.clone()
            whole = test.gathered()
            found[share, name] = whole.state_dict(), whole(new()), torch.equal(test.counts, before)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_are_one(tmp_path, free_port):
    mp.spawn(work, (free_port, str(tmp_path)), nprocs=2)
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        for (_, name), (state, p, unchanged) in found.items():
            alone = calibrated(**KINDS[name])
            assert torch.equal(state["counts"], alone.counts)
            assert torch.equal(p, alone(new()))
            assert unchanged  # so that it may be called again after the next batches


def test_without_processes_it_is_a_copy():
    test = calibrated()
    whole = test.gathered()
    assert torch.equal(whole.counts, test.counts)
    whole.update(new())
    assert test.samples.sum() == 500
