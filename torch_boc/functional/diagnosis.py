"""What a bug report must say about the machine: versions, available paths, and speed."""

import platform
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import torch

from .. import __version__
from ..kernels.cpu import library
from ..kernels.trial import problem
from ..kernels.triton.launch import HAS_TRITON
from .coins import bag_of_coins

PACKAGES = ("torchmetrics", "lightning", "pytorch-lightning", "transformers", "triton")
SHAPES = ((64, 10), (8192, 100), (4096, 1000))
SECONDS = 0.5  # of timing for each shape


def diagnose() -> dict[str, Any]:
    """Everything that `torch-boc doctor` prints, as plain values. This runs the kernels and takes a few seconds."""
    found = [_native_path(), _triton_path()]
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    return {
        "versions": versions(),
        "machine": machine(),
        "paths": found,
        "healthy": not any(path["trial"] for path in found),
        "speed": [_time_shape(*shape, device) for device in devices for shape in SHAPES],
    }


def _native_path() -> dict[str, Any]:
    details = {
        "variant": library.variant(),
        "variants": library.present(),
        "threads": library.threads(),
        "openmp": library.has_threads(),
    }
    return _path("native", "cpu", library.why_not(), details)


def _triton_path() -> dict[str, Any]:
    seen = torch.cuda.is_available()
    why_not = "" if HAS_TRITON else "Triton is not installed: pip install triton"
    details = {"gpu": torch.cuda.get_device_name() if seen else None}
    return _path("triton", "cuda", why_not if seen else "torch sees no GPU", details)


def _path(name: str, device: str, why_not: str, details: dict[str, Any]) -> dict[str, Any]:
    """One way of computing, tried on a small batch if it is available.

    `why_not` says why it is not, with the remedy. `trial` says what is wrong with its results: an empty text if nothing
    is wrong, None if it was not tried.
    """
    trial = None if why_not else problem(device)
    return {
        "name": name, "device": device, "why_not": why_not, "trial": trial, "details": details, "available": not why_not
    }  # fmt: skip


def versions() -> dict[str, str | None]:
    """The versions of torch_boc, torch and `PACKAGES`; None for a package that is not installed."""
    return {"torch_boc": __version__, "torch": torch.__version__, **{x: _version(x) for x in PACKAGES}}


def machine() -> dict[str, Any]:
    """The versions of Python and the system, and the CPU capability and threads that torch uses."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _time_shape(rows: int, classes: int, device: str) -> dict[str, Any]:
    """The best times of `bag_of_coins` and of a softmax that writes into existing memory, in microseconds."""
    logits = 4 * torch.randn(rows, classes, generator=torch.Generator().manual_seed(0)).to(device)
    there = torch.empty_like(logits)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    contestants: list[Callable[[], object]] = [
        lambda: bag_of_coins(logits),
        lambda: torch.softmax(logits, -1, out=there),
    ]
    coins, softmax = _best_times(contestants, wait)
    times = {"coins_us": round(1e6 * coins, 1), "softmax_us": round(1e6 * softmax, 1)}
    return {"rows": rows, "classes": classes, "device": device, **times, "ratio": round(coins / softmax, 3)}


def _best_times(contestants: list[Callable[[], object]], wait: Callable[[], None]) -> list[float]:
    """The shortest time of each function in seconds. They take turns, so that a busy machine slows all equally."""
    best, rounds, end = [float("inf")] * len(contestants), 0, time.perf_counter() + SECONDS
    while rounds < 3 or time.perf_counter() < end:
        for index, run in enumerate(contestants):
            wait()
            start = time.perf_counter()
            run()
            wait()
            best[index] = min(best[index], time.perf_counter() - start)
        rounds += 1
    return best
