"""`torch-boc doctor`: which backends are available on this machine, whether they are correct, and how fast."""

import logging
import platform
from importlib import metadata
from typing import Any

import typer

from .. import __version__
from . import options as o
from .output import Terminal, print_json, show_pairs, spinner

UNHEALTHY = 1
PACKAGES = ("torchmetrics", "lightning", "pytorch-lightning", "transformers", "triton")
SHAPES = ((64, 10), (8192, 100), (4096, 1000))
SECONDS = 0.2  # of timing for each function and shape
RATIO = "Time of bag_of_coins over that of torch.softmax(out=)"
SHAPE, TIME = "{rows} × {classes} on {device}", "{ratio:.2f}  ({coins_us:,.0f} µs over {softmax_us:,.0f} µs)"


def doctor(json: o.Json = False) -> None:
    """Check which backends are available, correct and fast on this machine.

    The kernels are compared with torch's own operations on a small batch, and the probe is timed next to torch.softmax.
    The exit code is 1 if a backend gives wrong results, and 0 otherwise: a missing backend is not an error.

    Examples:
        torch-boc doctor
        torch-boc doctor --json > doctor.json
    """
    with spinner("testing and timing"):
        logging.disable(logging.WARNING)  # torch logs that it sees no CUDA runtime
        try:
            diagnosis = diagnose()
        finally:
            logging.disable(logging.NOTSET)
    if json:
        print_json(diagnosis, indent=2)
    else:
        console, machine = Terminal(), diagnosis["machine"]
        facts = {"Python": machine["python"], "platform": machine["platform"], "CPU": machine["cpu_capability"]}
        versions = {name: version or "not installed" for name, version in diagnosis["versions"].items()}
        backends = {path["name"]: _sentence(path) for path in diagnosis["paths"]} | {"torch": "Available everywhere."}
        times = {SHAPE.format(**x): TIME.format(**x) for x in diagnosis["speed"]}
        sections = {"Versions": versions | facts, "Backends": backends, RATIO: times}
        for title, lines in sections.items():
            console.print(title, style="bold")
            show_pairs(((f"  {name} ", value) for name, value in lines.items()), console)
    if not diagnosis["healthy"]:
        raise typer.Exit(UNHEALTHY)


def _sentence(path: dict[str, Any]) -> str:
    """Whether a backend is available and correct, and what it uses."""
    if path["why_not"]:
        return f"Not available: {path['why_not']}."
    if path["self_test"]:
        return f"WRONG: {path['self_test']}. Please report this, with --json."
    details = (f"{name} {', '.join(x) if isinstance(x, list) else x}" for name, x in path["details"].items())
    return f"Available and correct: {'; '.join(details)}."


def diagnose() -> dict[str, Any]:
    """Everything that `torch-boc doctor` prints, as plain values. This runs the kernels and takes a few seconds."""
    import torch

    from ..kernels.cpu import loader
    from ..kernels.triton.launch import HAS_TRITON

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    no_triton = "" if HAS_TRITON else "Triton is not installed: pip install triton"
    libraries: dict[str, Any] = {"variant": loader.variant(), "variants": loader.present()}
    libraries |= {"threads": loader.threads(), "openmp": bool(loader.thread_functions())}
    paths = [
        _path("native", "cpu", loader.why_not(), libraries),
        _path("triton", "cuda", no_triton if gpu else "torch sees no GPU", {"gpu": gpu}),
    ]
    versions: dict[str, str | None] = {"torch_boc": __version__, "torch": torch.__version__}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    devices = ["cpu", "cuda"] if gpu else ["cpu"]
    return {
        "versions": versions,
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
    from ..kernels.selftest import self_test

    state = {"name": name, "device": device, "available": not why_not, "why_not": why_not}
    return {**state, "self_test": None if why_not else self_test(device), "details": details}


def _time_shape(rows: int, classes: int, device: str) -> dict[str, Any]:
    """The times of `bag_of_coins` and of a softmax that writes into existing memory, in microseconds."""
    import torch
    from torch.utils.benchmark import Timer

    from ..functional.coins import bag_of_coins

    logits = 4 * torch.randn(rows, classes, generator=torch.Generator().manual_seed(0)).to(device)
    names = {"logits": logits, "there": torch.empty_like(logits), "torch": torch, "bag_of_coins": bag_of_coins}
    times = {}
    for name, call in (("coins_us", "bag_of_coins(logits)"), ("softmax_us", "torch.softmax(logits, -1, out=there)")):
        timer = Timer(call, globals=names, num_threads=torch.get_num_threads())  # it waits for the device
        times[name] = round(1e6 * min(timer.blocked_autorange(min_run_time=SECONDS).times), 1)
    ratio = round(times["coins_us"] / times["softmax_us"], 3)
    return {"rows": rows, "classes": classes, "device": device, **times, "ratio": ratio}
