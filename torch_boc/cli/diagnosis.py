"""What a bug report needs about the machine: versions, available backends, and speed."""

import platform
from importlib import metadata
from typing import Any

import torch
from torch.utils.benchmark import Timer

from .. import __version__
from ..functional.coins import bag_of_coins
from ..kernels.cpu import loader
from ..kernels.selftest import self_test
from ..kernels.triton.launch import HAS_TRITON

PACKAGES = ("torchmetrics", "lightning", "pytorch-lightning", "transformers", "triton")
SHAPES = ((64, 10), (8192, 100), (4096, 1000))
SECONDS = 0.2  # of timing for each function and shape


def diagnose() -> dict[str, Any]:
    """Everything that `torch-boc doctor` prints, as plain values. This runs the kernels and takes a few seconds."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    no_triton = "" if HAS_TRITON else "Triton is not installed: pip install triton"
    libraries: dict[str, Any] = {"variant": loader.variant(), "variants": loader.present()}
    libraries |= {"threads": loader.threads(), "openmp": bool(loader.thread_functions())}
    paths = [
        _path("native", "cpu", loader.why_not(), libraries),
        _path("triton", "cuda", no_triton if gpu else "torch sees no GPU", {"gpu": gpu}),
    ]
    devices = ["cpu", "cuda"] if gpu else ["cpu"]
    return {
        "versions": {"torch_boc": __version__, "torch": torch.__version__, **{x: _version(x) for x in PACKAGES}},
        "machine": {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
        },
        "paths": paths,
        "healthy": not any(path["self_test"] for path in paths),
        "speed": [_time_shape(*shape, device) for device in devices for shape in SHAPES],
    }


def _path(name: str, device: str, why_not: str, details: dict[str, Any]) -> dict[str, Any]:
    """A backend, tested on a small batch if it is available.

    `why_not` is the reason why it is not, with the remedy. `self_test` is what is wrong with its results: an empty text
    if nothing is wrong, None if it was not tested.
    """
    state = {"name": name, "device": device, "available": not why_not, "why_not": why_not}
    return {**state, "self_test": None if why_not else self_test(device), "details": details}


def _version(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _time_shape(rows: int, classes: int, device: str) -> dict[str, Any]:
    """The times of `bag_of_coins` and of a softmax that writes into existing memory, in microseconds."""
    logits = 4 * torch.randn(rows, classes, generator=torch.Generator().manual_seed(0)).to(device)
    names = {"logits": logits, "there": torch.empty_like(logits), "torch": torch, "bag_of_coins": bag_of_coins}
    times = {}
    for name, call in (("coins_us", "bag_of_coins(logits)"), ("softmax_us", "torch.softmax(logits, -1, out=there)")):
        timer = Timer(call, globals=names, num_threads=torch.get_num_threads())  # it waits for the device
        times[name] = round(1e6 * min(timer.blocked_autorange(min_run_time=SECONDS).times), 1)
    ratio = round(times["coins_us"] / times["softmax_us"], 3)
    return {"rows": rows, "classes": classes, "device": device, **times, "ratio": ratio}
