"""Timing that a noisy machine cannot fool much: contestants take turns, and the best turn of each counts."""

import csv
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

from torch_boc.data.atomic import replacing
from torch_boc.kernels import use
from torch_boc.report.format import counted

RESULTS = Path(__file__).parent / "results"


# A turn takes at least so long: the first call finds what the contestant before has left in the caches, and pays for
# it. To a call of less than a millisecond that matters much, to one of 20 milliseconds little.
TURN = 2e-2


def best_times(contestants: Mapping[str, Callable[[], object]], *, seconds: float = 4.0) -> dict[str, float]:
    """The shortest time of a call of each contestant in seconds, over rounds in which all of them have a turn."""
    best = dict.fromkeys(contestants, float("inf"))
    for run in contestants.values():  # compiles, allocates and warms the caches
        run()
    rounds, end = 0, time.perf_counter() + seconds
    while rounds < 5 or time.perf_counter() < end:
        for name, run in contestants.items():
            turn = time.perf_counter() + TURN
            while True:
                start = time.perf_counter()
                run()
                now = time.perf_counter()
                best[name] = min(best[name], now - start)
                if now > turn:
                    break
        rounds += 1
    return best


def compiled(function: Callable[..., object]) -> Callable[..., object]:
    """`function` compiled anew for one shape."""
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, dynamic=False)


def in_torch(function: Callable[..., object]) -> Callable[..., object]:
    """`function` by torch's operations."""

    def run(*args: object) -> object:
        with use("torch"):
            return function(*args)

    return run


def machine() -> str:
    """What a reader must know to read a timing."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return (
        f"{model}, {counted(torch.get_num_threads(), 'thread')}, torch {torch.__version__}, {date.today().isoformat()}"
    )


def write_csv(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write `rows` under a line that names the machine; to a temporary name first."""
    rows = list(rows)
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        file.write(f"# {machine()}\n")
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_page(path: Path, text: str) -> None:
    """Write a page, to a temporary name first, and say so."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"wrote {path.name}")


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ratio(times: Mapping[str, Any], name: str, baseline: str) -> float:
    """The time of `name` over that of `baseline`."""
    return float(times[name]) / float(times[baseline])


def target(name: str, value: float, limit: float) -> dict[str, object]:
    """Say whether a ratio is at most what was aimed at, and return the row for a table."""
    met = "met" if value <= limit else "missed"
    print(f"{met:7} {value:7.3f} (at most {limit:.3f})  {name}", flush=True)
    return {"ratio": name, "measured": round(value, 3), "at most": round(limit, 3), "target": met}
