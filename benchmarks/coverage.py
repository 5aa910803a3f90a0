"""Do intervals of 95 % hold the truth, and are sentences right? `python -m benchmarks.coverage`.

Draws samples whose truth is known, 500 / 300 / 150 times at n = 200 / 1,000 / 5,000, and counts. Each line of
results/coverage.csv is written when it is done, and a run that was interrupted goes on after the last one;
`--fresh` begins again. `--scale 0.1` takes a tenth of the repetitions.

- `interval`: how often it holds the truth, lies above or below it, and its mean width.
- `sentence`: how often something is said, and whether it should be.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import RESULTS
from benchmarks.studies import STUDIES, Row, Study

REPETITIONS = {200: 500, 1000: 300, 5000: 150, 30_000: 150}
FIELDS = ("study", "case", "n", "repetitions", "what", "truth", "share", "above", "below", "mean width", "seconds")


def units(scale: float) -> Iterator[tuple[str, int, int, Callable[[], list[Row]]]]:
    """Name, size, repetitions and work of everything that there is to count."""
    for name, study in STUDIES.items():
        for n in study.sizes:
            repetitions = max(2, round(scale * REPETITIONS[n] * study.share))
            yield name, n, repetitions, partial(_run, study, n, repetitions)


def _run(study: Study, n: int, repetitions: int) -> list[Row]:
    return study.run(n, repetitions)


def finished(path: Path) -> set[tuple[str, int, int]]:
    """What a former run has written."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {(row["study"], int(row["n"]), int(row["repetitions"])) for row in csv.DictReader(file)}


def append(path: Path, rows: list[dict[str, Any]]) -> None:
    """Add lines to the table, under the names of its columns."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Run what is not done yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="repetitions, as a share of all")
    parser.add_argument("--fresh", action="store_true", help="begin again")
    parser.add_argument("--output", type=Path, default=RESULTS / "coverage.csv")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.fresh:
        args.output.unlink(missing_ok=True)
    done, begin = finished(args.output), time.perf_counter()
    for name, n, repetitions, work in units(args.scale):
        if (name, n, repetitions) in done:
            continue
        start = time.perf_counter()
        print(f"{start - begin:7.0f} s  {name}, n = {n:,}, {repetitions} repetitions", flush=True)
        rows = work()
        key = {"study": name, "n": n, "repetitions": repetitions, "seconds": round(time.perf_counter() - start, 1)}
        append(args.output, [key | row for row in rows])
        for row in rows:
            print(f"           {row['case']}, {row['what']}: {row['share']}", flush=True)


if __name__ == "__main__":
    main()
