"""What a reader of the results must know of the machine: versions, cards and driver, and no names or paths."""

import shutil
import subprocess
from typing import Any

import torch

from ..functional.diagnosis import machine, versions
from ..kernels.cpu import library


def describe_machine() -> dict[str, Any]:
    """All facts about the machine, ready for JSON."""
    return {
        **versions(),
        **machine(),
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "driver": driver(),
        "cards": [card(i) for i in range(torch.cuda.device_count())],
        "native library": library.variant() or library.why_not(),
    }


def card(index: int) -> dict[str, Any]:
    """Name, capability and size of a card, and its published bandwidth where torch knows the clock."""
    found = torch.cuda.get_device_properties(index)
    facts = {
        "name": found.name,
        "capability": f"{found.major}.{found.minor}",
        "memory, MB": found.total_memory // 2**20,
        "multiprocessors": found.multi_processor_count,
    }
    clock, width = getattr(found, "memory_clock_rate", None), getattr(found, "memory_bus_width", None)
    if clock and width:  # kHz and bits; two transfers in each cycle
        facts["peak GB/s"] = round(2 * clock * 1e3 * width / 8 / 1e9)
    return facts


def driver() -> str | None:
    """The version of NVIDIA's driver as nvidia-smi gives it; None without that program."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.split()), None)
