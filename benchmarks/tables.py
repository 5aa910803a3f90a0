"""Time and memory of a report on Parquet larger than memory: `python -m benchmarks.tables`. Writes results/tables.csv.

Rows of 10 float32 logits with targets, in files of a million rows. Each run is `torch-boc report` in a process of its
own, with an OOD set of a million rows, from reading to the last figure. The file of the largest run takes about 1 GB.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.harness import RESULTS, target, write_csv

FILE_ROWS = 1_000_000
CLASSES = 10
LIBRARIES = (
    "import torch_boc.evaluation, torch_boc.cli.report, pandas, matplotlib.figure, sklearn.isotonic, scipy.special"
)


def write_file(path: Path, seed: int, signal: float = 4.0) -> None:
    """A million rows: the target's logit is higher by `signal`, with noise."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(CLASSES, (FILE_ROWS,), generator=generator)
    logits = 2 * torch.randn(FILE_ROWS, CLASSES, generator=generator)
    logits[torch.arange(FILE_ROWS), target] += signal
    columns = {f"logit_{i}": logits[:, i].numpy() for i in range(CLASSES)}
    pq.write_table(pa.table(columns | {"target": target.numpy()}), path)


def run(command: list[str]) -> tuple[float, float]:
    """The seconds and the peak memory, in MB, of a process."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{command} failed with status {status}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    """Run, print the targets, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--output", type=Path, default=RESULTS / "tables.csv")
    args = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, signal in (("all", 4.0), ("far", 1.0)):
            (folder / kind).mkdir()
            for i in range(max(args.millions) if kind == "all" else 1):
                write_file(folder / kind / f"part-{i:03}.parquet", i + 1000 * (kind == "far"), signal)
        _, libraries = run(["-c", LIBRARIES])
        for millions in args.millions:
            part = folder / f"id-{millions}"
            part.mkdir()
            for i in range(millions):
                (part / f"part-{i:03}.parquet").symlink_to(folder / "all" / f"part-{i:03}.parquet")
            options = ["--id", str(part), "--ood", f"far={folder / 'far'}", "--out", str(folder / "report"), "--quiet"]
            seconds, peak = run(["-m", "torch_boc.cli", "report", *options])
            rows.append({"rows": millions * FILE_ROWS, "seconds": round(seconds, 1), "peak MB": round(peak)})
            rows[-1] |= {"libraries MB": round(libraries), "us/row": round(1e6 * seconds / (millions * FILE_ROWS), 3)}
            print(rows[-1])
    last, first = rows[-1], rows[0]
    target("peak memory in GB of a report on the largest table", float(str(last["peak MB"])) / 1024, 2.0)
    growth = float(str(last["seconds"])) / float(str(first["seconds"])) * first["rows"] / last["rows"]  # type: ignore[operator]
    target("time for each row, largest table over smallest", growth, 1.05)
    write_csv(args.output, rows)


if __name__ == "__main__":
    main()
