"""The native path in several threads, in forked processes and in the workers of a DataLoader."""

import multiprocessing
import os
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tests.functional.cases import random_logits
from tests.kernels.cases import needs_native
from torch_boc.functional import bag_of_coins
from torch_boc.kernels import use

pytestmark = [needs_native, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]
# Enough logits for several threads.
ROWS, CLASSES = 500, 1000


def batch(seed):
    return random_logits(ROWS, CLASSES, seed=seed, dtype=torch.float32)


def coins(logits):
    """Odds and free gap, by the native library."""
    with use("native"):
        found = bag_of_coins(logits)
    return torch.stack([found.odds, found.free_gap])


@pytest.fixture
def expected():
    """The results of four batches, computed in two threads: from then on, those of OpenMP are waiting."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield [coins(batch(seed)) for seed in range(4)]
    torch.set_num_threads(before)


class Batches(Dataset):
    """Results that a worker computes."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return coins(batch(index))


def test_the_workers_of_a_loader(expected):
    loader = DataLoader(Batches(), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads
        found = list(loader)
    for actual, other in zip(found, expected, strict=True):
        torch.testing.assert_close(actual, other, rtol=0, atol=0)


def _send(pipe, logits):
    torch.set_num_threads(2)
    pipe.send(coins(logits).tolist())


def test_a_forked_process_that_asks_for_threads(expected):
    """It computes in one: the other threads did not survive the fork. Torch's own operations would hang there."""
    mine, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_send, args=(theirs, batch(1)), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    try:
        assert mine.poll(60), "the child waits for threads that do not exist"
        torch.testing.assert_close(torch.tensor(mine.recv()), expected[1], rtol=0, atol=0)
    finally:
        child.kill()
        child.join()


def test_several_threads_at_once(expected):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(coins, [batch(seed) for seed in range(4)] * 5))
    for index, actual in enumerate(found):
        torch.testing.assert_close(actual, expected[index % 4], rtol=0, atol=0)
