"""Check 7: how fast the probe is compared with softmax, and how many bytes per second it reads."""

import time
from collections.abc import Callable
from itertools import cycle
from typing import Any, NamedTuple

import torch

from ..functional import bag_of_coins
from .cases import describe, make_logits
from .outcomes import Finding, check

ROUNDS, CALLS = 10, 10
CACHES = 200e6  # bytes; logits of twice as many do not stay in the cache of a GPU
SLEEP = 20_000_000  # cycles of a GPU, about 10 ms
INSTRUCTIONS = "instructions per logit are left out: counting them needs ncu, see CONTRIBUTING.md"


class Shape(NamedTuple):
    """Logits on a GPU, and how long the probe may take, as a multiple of the time of softmax."""

    rows: int
    classes: int
    dtype: torch.dtype
    limit: float


# Softmax reads logits and writes as many results; the probe only reads them. So the probe should be faster, except for
# rows that are so short that its results are as many bytes as the logits.
SHAPES = (
    Shape(1_000_000, 10, torch.float32, 2.0),
    Shape(16_384, 1_000, torch.float32, 1.0),
    Shape(16_384, 1_000, torch.bfloat16, 1.0),
    Shape(512, 50_257, torch.bfloat16, 1.0),
    Shape(256, 128_256, torch.bfloat16, 1.0),
)
# A CPU gets fewer rows. Its limit is loose: there may be no native library, and other programs may use the CPU.
CPU_PART, CPU_LIMIT = 64, 20.0


@check("speed", "the probe takes no longer than softmax (twice as long at 10 classes; 20 times on a CPU)")
def speed(device: torch.device) -> Finding:
    """Compare the best of several rounds, in which the probe and softmax take turns."""
    on_cpu = device.type == "cpu"
    shapes = [Shape(x.rows // CPU_PART, x.classes, x.dtype, CPU_LIMIT) if on_cpu else x for x in SHAPES]
    measured = [measure(shape, device, cpu_seconds if on_cpu else gpu_seconds) for shape in shapes]
    slow = [x["logits"] for x in measured if not x["of softmax"] <= x["at most"]]
    ratios = ", ".join(f"{x['of softmax']:.2f}" for x in measured)
    fastest = max(x["GB/s"] for x in measured)
    found = f"{ratios} of the time of softmax; up to {fastest:,.0f} GB/s"
    if slow:
        found += f"; too slow: {', '.join(slow)}"
    return Finding(not slow, found, INSTRUCTIONS, {"shapes": measured})


def measure(shape: Shape, device: torch.device, seconds: Callable[[Callable[[], object]], float]) -> dict[str, Any]:
    """Times and bytes per second of the probe and of softmax at one shape."""
    logits = make_logits(*shape[:2], dtype=shape.dtype, device=device)
    copies = 0 if device.type == "cpu" else int(2 * CACHES / logits.nbytes)
    batches = cycle([logits, *(logits.clone() for _ in range(copies))])
    contestants = {"probe": lambda: bag_of_coins(next(batches)), "softmax": lambda: next(batches).softmax(-1)}
    times = dict.fromkeys(contestants, float("inf"))
    for turn in range(ROUNDS + 1):
        for name, run in contestants.items():
            taken = seconds(run)
            if turn:  # the first turn compiles
                times[name] = min(times[name], taken)
    return {
        "logits": describe(*shape[:2], dtype=shape.dtype),
        "probe, us": 1e6 * times["probe"],
        "softmax, us": 1e6 * times["softmax"],
        "of softmax": times["probe"] / times["softmax"],
        "at most": shape.limit,
        "GB/s": logits.nbytes / times["probe"] / 1e9,
        "softmax GB/s": 2 * logits.nbytes / times["softmax"] / 1e9,
    }


def gpu_seconds(run: Callable[[], object]) -> float:
    """Seconds that the GPU takes for one call. It sleeps until all calls are queued, so that the host is not timed."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(SLEEP)
    start.record()
    for _ in range(CALLS):
        run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / CALLS


def cpu_seconds(run: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
