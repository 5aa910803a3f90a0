"""Check 6: language models shift their logits by one position, and the probe makes no copy of shifted logits."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ..functional import bag_of_coins
from ..metrics import BoCMetric
from .cases import make_target, need_cuda
from .outcomes import Finding, check

SEQUENCES, LENGTH, WORDS = 4, 1_025, 32_000
SHARE = 0.1


@check("memory", f"the probe of logits[:, :-1] takes less than {SHARE:.0%} of the memory of the logits, so no copy")
def peak(device: torch.device) -> Finding:
    """The largest memory, without that of the logits, of a new metric with one update, and of `bag_of_coins`."""
    need_cuda(device, "torch counts the memory of GPUs only")
    return measure(torch.randn(SEQUENCES, LENGTH, WORDS, dtype=torch.bfloat16, device=device))


def measure(logits: Tensor) -> Finding:
    """Both peaks, relative to the bytes of the logits."""
    shifted, words = logits[:, :-1], logits.shape[-1]
    target = make_target(shifted.shape[:-1].numel(), words, logits.device).view(shifted.shape[:-1])
    shares = {}
    for user in (update_metric, probe):
        user(shifted[:1, :2], target[:1, :2])  # compiles, and loads libraries
        shares[user.__name__] = extra(logits.device, partial(user, shifted, target)) / logits.nbytes
    found = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    return Finding(max(shares.values()) < SHARE, f"{found} of {logits.nbytes / 1e6:,.0f} MB", details=shares)


def update_metric(logits: Tensor, target: Tensor) -> object:
    """A new metric, updated with logits whose last axis is that of the words."""
    metric = BoCMetric(dim=-1).to(logits.device)
    metric.update(logits, target)
    return metric


def probe(logits: Tensor, target: Tensor) -> object:
    """The probe alone, which needs no targets."""
    return bag_of_coins(logits)


def extra(device: torch.device, run: Callable[[], object]) -> int:
    """The most bytes that `run` takes, without those that were taken before it."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before
