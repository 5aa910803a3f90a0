"""Time what people wait for, imports, help and reports: `python -m benchmarks.latency`. Writes results/latency.csv.

Each is a process of its own. Its processor seconds count, the least of several turns, next to those of importing torch
and torchmetrics in the same run.
"""

import os
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.harness import RESULTS, target, write_csv

BASELINE = "import torch, torchmetrics"
TURNS = 3
COMMANDS = ("", "demo", "report", "compare", "probe", "screen", "monitor", "text", "trace", "doctor")


def save_logits(path: Path, samples: int, *, signal: float, labelled: bool = True) -> str:
    """Write logits of ten classes whose target is lifted by `signal`."""
    generator = torch.Generator().manual_seed(samples)
    labels = torch.randint(10, (samples,), generator=generator)
    logits = torch.randn(samples, 10, generator=generator).mul_(2.5)
    logits[torch.arange(samples), labels] += signal
    torch.save({"logits": logits} | ({"target": labels} if labelled else {}), path)
    return str(path)


def processor_seconds(args: list[str]) -> float:
    """Run a process to its end, without output."""
    quiet = [(os.POSIX_SPAWN_OPEN, place, os.devnull, os.O_WRONLY, 0) for place in (1, 2)]
    _, status, used = os.wait4(os.posix_spawn(args[0], args, os.environ, file_actions=quiet), 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"{' '.join(args)} failed")
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run, print the targets, write the table."""
    tool = [sys.executable, "-c", "from torch_boc.cli import main; main()"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = [save_logits(folder / "test.pt", 10_000, signal=8.0), "--ood"]
        small += [save_logits(folder / "ood.pt", 26_000, signal=0.0, labelled=False), "--calibration"]
        small += [save_logits(folder / "held_out.pt", 5_000, signal=8.0)]
        large = [save_logits(folder / "many.pt", 1_000_000, signal=8.0), "--ood"]
        large += [save_logits(folder / "far.pt", 1_000_001, signal=0.0, labelled=False)]
        report = ["--out", str(folder / "out")]
        runs = {BASELINE: ([sys.executable, "-c", BASELINE], None)}
        runs["import torch_boc; torch_boc.BoCMetric"] = (
            [sys.executable, "-c", "import torch_boc; torch_boc.BoCMetric"],
            None,
        )
        for command in COMMANDS:
            runs[f"torch-boc {command} --help".replace("  ", " ")] = ([*tool, *command.split(), "--help"], 0.5)
        runs["torch-boc report, 10,000 x 10 against 26,000, calibrated"] = ([*tool, "report", *small, *report], 8.0)
        runs["torch-boc report, 1,000,000 x 10 against as many"] = ([*tool, "report", *large, *report], 10.0)
        best = dict.fromkeys(runs, float("inf"))
        for _ in range(TURNS):
            for what, (args, _) in runs.items():
                best[what] = min(best[what], processor_seconds(args))
    rows = []
    for what, (_, limit) in runs.items():
        over = best[what] / best[BASELINE]
        asked = target(what, over if limit is None else best[what], limit or 1.15)
        seconds = {"processor seconds": round(best[what], 2), "over the first line": round(over, 3)}
        rows.append({"what": what} | seconds | {"target": asked["target"]})
    write_csv(RESULTS / "latency.csv", rows)


if __name__ == "__main__":
    main()
