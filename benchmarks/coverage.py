"""Do intervals of 95 % hold the truth, and are sentences right? `python -m benchmarks.coverage`.

Draws samples whose truth is known, 500 / 300 / 150 times at n = 200 / 1,000 / 5,000, and counts. Each line of
results/coverage.csv is written when it is done, and an interrupted run resumes after the last one;
`--fresh` begins again. `--scale 0.1` takes a tenth of the repetitions, and what a larger run finds replaces it.
All of it takes about 45 minutes of one processor.

- `interval`: how often it holds the truth, lies above or below it, and its mean width.
- `sentence`: how often something is said, and whether it should be.
- `guarantee`: how often it is broken, the limit of that as the truth, and the Monte Carlo error.
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
from torch_boc.data.atomic import replacing

REPETITIONS = {
    100: 500,
    200: 500,
    300: 500,
    500: 500,
    1000: 300,
    1600: 300,
    3000: 300,
    5000: 150,
    20_000: 150,
    30_000: 150,
}
FIELDS = (
    "study",
    "case",
    "n",
    "repetitions",
    "what",
    "truth",
    "share",
    "above",
    "below",
    "error",
    "mean width",
    "seconds",
)


def units(scale: float) -> Iterator[tuple[str, int, int, Callable[[], list[Row]]]]:
    """Name, size, repetitions and work of everything that there is to count."""
    for name, study in STUDIES.items():
        for n in study.sizes:
            repetitions = max(2, round(scale * REPETITIONS[n] * study.share))
            yield name, n, repetitions, partial(_run, study, n, repetitions)


def _run(study: Study, n: int, repetitions: int) -> list[Row]:
    return study.run(n, repetitions)


def read(path: Path) -> list[dict[str, Any]]:
    """What former runs have written."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def is_done(rows: list[dict[str, Any]], name: str, n: int, repetitions: int) -> bool:
    """Whether a study has been run at that size, with as many repetitions or more."""
    return any(row["study"] == name and int(row["n"]) == n and int(row["repetitions"]) >= repetitions for row in rows)


def save(path: Path, rows: list[dict[str, Any]]) -> None:
    """Add lines to the table; those of the same study and size with fewer repetitions make room."""
    names = {(row["study"], str(row["n"])) for row in rows}
    kept = [row for row in read(path) if (row["study"], row["n"]) not in names]
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, *rows])


def main() -> None:
    """Run what is not done yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="repetitions, as a share of all")
    parser.add_argument("--only", nargs="+", choices=STUDIES, default=[*STUDIES], help="some of the studies")
    parser.add_argument("--fresh", action="store_true", help="begin again")
    parser.add_argument("--output", type=Path, default=RESULTS / "coverage.csv")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.fresh:
        args.output.unlink(missing_ok=True)
    begin = time.perf_counter()
    for name, n, repetitions, work in units(args.scale):
        if name not in args.only or is_done(read(args.output), name, n, repetitions):
            continue
        start = time.perf_counter()
        print(f"{start - begin:7.0f} s  {name}, n = {n:,}, {repetitions} repetitions", flush=True)
        rows = work()
        key = {"study": name, "n": n, "repetitions": repetitions, "seconds": round(time.perf_counter() - start, 1)}
        save(args.output, [key | row for row in rows])
        for row in rows:
            print(f"           {row['case']}, {row['what']}: {row['share']}", flush=True)


if __name__ == "__main__":
    main()
