"""Check 9: a metric on two processes gives what it gives on one."""

import os
import sys
from math import inf, isnan

import torch
import torch.distributed as dist
from torch import Tensor

from ..metrics import BoCMetric
from .cases import make_logits, make_target, other_cards
from .children import in_processes
from .outcomes import Finding, SkippedError, check

CLASSES = 20
BATCHES = (100, 60, 33)
SHARES = ((0, 2), (1,))  # the batches of each process; one process has more than the other
LIMIT = 1e-12


@check("two processes", "two processes with uneven batches count the same samples as one, and agree to 1e-12")
def two_processes(device: torch.device) -> Finding:
    """The processes use NCCL if each has its own card; otherwise gloo, which adds the sums on the CPU."""
    if not dist.is_available():
        raise SkippedError("this build of torch has no torch.distributed")
    others = other_cards(device) if device.type == "cuda" and dist.is_nccl_available() else []
    places = [str(device), str(others[0] if others else device)]
    backend = "nccl" if others else "gloo"
    results = in_processes(share_work, 2, places, backend)
    alone = summarize(places[0], range(len(BATCHES)))
    off = max(_difference(result, alone) for result in results)
    samples = [int(result["samples"]) for result in results]
    passed = samples == [sum(BATCHES)] * 2 and off <= LIMIT
    note = "" if others or device.type == "cpu" else "NCCL needs two cards: both processes used one, and gloo"
    found = f"{backend}: {samples[0]} and {samples[1]} samples of {sum(BATCHES)}, results differ by {off:.1e}"
    return Finding(passed, found, note, {"backend": backend, "samples": samples, "difference": off})


def share_work(rank: int, folder: str, places: list[str], backend: str) -> dict[str, float]:
    """What one of the two processes computes with the other."""
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # one machine: the name of the host may not be known
    if backend == "nccl":
        torch.cuda.set_device(places[rank])
    dist.init_process_group(backend, init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    try:
        return summarize(places[rank], SHARES[rank], on_cpu=backend == "gloo")
    finally:
        dist.destroy_process_group()


def summarize(place: str, batches: "range | tuple[int, ...]", *, on_cpu: bool = False) -> dict[str, float]:
    """The results of a metric that is updated on `place`; of all processes together, if there are several."""
    metric = BoCMetric(CLASSES).to(place)
    for i in batches:
        metric.update(*_batch(i, place))
    results = (metric.cpu() if on_cpu else metric).compute()
    return {name: float(value) for name, value in results.items()}


def _batch(i: int, place: str) -> tuple[Tensor, Tensor]:
    return make_logits(BATCHES[i], CLASSES, device=place), make_target(BATCHES[i], CLASSES, place)


def _difference(one: dict[str, float], other: dict[str, float]) -> float:
    """The largest difference. NaN in both results is no difference; NaN in only one is an infinite difference."""
    pairs = [(one[name], other[name]) for name in other]
    off = [0.0 if isnan(x) and isnan(y) else abs(x - y) for x, y in pairs]
    return max(inf if isnan(x) else x for x in off)
