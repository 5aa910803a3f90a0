"""Batches for the tests of the native calls: ordinary, flat, sharp and odd rows, and targets of every kind."""

from typing import NamedTuple

import torch
from torch import Tensor

from tests.functional.cases import random_logits
from tests.kernels.cases import make_odd
from torch_boc.core.coins import Coins
from torch_boc.functional.evidence import EXTRAS, Evidence
from torch_boc.functional.tallies import Tally, empty_tally
from torch_boc.kernels.cpu import calls

CLASSES = (2, 3, 10, 16, 17, 47, 48, 100, 1000, 1025, 5000)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
IGNORED = -100


class Batch(NamedTuple):
    """Logits and a target for each row."""

    logits: Tensor
    target: Tensor


def make_batch(classes: int, dtype: torch.dtype = torch.float32, rows: int = 70) -> Batch:
    """Rows of several scales, from nearly tied to far apart; the first seven are odd, and so are some targets."""
    logits = random_logits(rows, classes, scale=1.0, dtype=torch.float64, seed=classes)
    logits *= torch.tensor([3.0, 1e-4, 40.0, 0.5, 8.0, 200.0]).repeat(rows)[:rows, None]
    logits = make_odd(logits.clamp(-6e4, 6e4).to(dtype))
    target = torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(0))
    target[::5] = logits.double().nan_to_num(0.0).argmax(-1)[::5]
    target[[3, 9, 11]] = IGNORED
    target[[7, 13]] = torch.tensor([classes, -1])
    return Batch(logits, target)


def native_evidence(batch: Batch, *, trials: int = 100, ignore_index: int | None = IGNORED) -> Evidence:
    """What `functional.gather` gives, by the native library."""
    numbers = calls.evidence(batch.logits, extras=EXTRAS, target=batch.target)
    counted = None if ignore_index is None else batch.target != ignore_index
    coins = Coins(*numbers[:5])
    return Evidence(coins, batch.logits.shape[-1], trials, *numbers[5:8], counted, batch.target, *numbers[8:])


def native_tally(batch: Batch, *, bins: int = 15, trials: int = 100, ignore_index: int | None = IGNORED) -> Tally:
    """The tally of one batch, in one native call."""
    states = empty_tally(bins)
    calls.tally(batch.logits, batch.target, ignore_index, trials, 0.05, states)
    return states


def assert_same_tally(actual: Tally, expected: Tally, *, rtol: float = 1e-9) -> None:
    """Counts to the last one, sums up to rounding."""
    for name, one, other in zip(Tally._fields, actual, expected, strict=True):
        exact = {"rtol": 0, "atol": 0} if one.dtype == torch.int64 else {"rtol": rtol, "atol": 1e-12}
        torch.testing.assert_close(one, other, **exact, msg=lambda text, name=name: f"{name}: {text}")
