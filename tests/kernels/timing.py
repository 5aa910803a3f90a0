"""Times on a GPU that its launches cannot hide, and that a busy machine cannot fool much."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from benchmarks.traffic import GPUS, rows_traffic


def best_times(
    contestants: Mapping[str, Callable[[], object]], measure: Callable[[Callable[[], object]], float], rounds: int = 20
) -> dict[str, float]:
    """The shortest time of each contestant, over rounds in which all of them take their turn, after one to warm up."""
    for run in contestants.values():
        measure(run)
    times = [{name: measure(run) for name, run in contestants.items()} for _ in range(rounds)]
    return {name: min(each[name] for each in times) for name in contestants}


def gpu_seconds(run: Callable[[], object], calls: int = 10) -> float:
    """Seconds that the device takes for one call, the host's not counted: it sleeps until all calls are queued."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(20_000_000)  # cycles, about 10 ms
    start.record()
    for _ in range(calls):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / calls


def report(device: str, logits: Tensor, times: Mapping[str, float]) -> str:
    """Both times, and the bytes per second of the sums beside the peak of the device, where it is known."""
    both = ", ".join(f"{name} {1e6 * seconds:.1f} µs" for name, seconds in times.items())
    reached = rows_traffic(logits).least / times["sums"]
    peaks = [f" of {gpu.bandwidth / 1e9:,.0f}" for gpu in GPUS.values() if gpu.device in device]
    return f"{device}, {tuple(logits.shape)} {logits.dtype}: {both}; {reached / 1e9:,.0f}{''.join(peaks)} GB/s"
