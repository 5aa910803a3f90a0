"""Time and memory of a report on Parquet larger than memory: `python -m benchmarks.tables`. Writes results/tables.csv.

Rows of 10 float32 logits with targets, in files of a million rows. Each run is `torch-boc report` in a process of its
own, with an OOD set of a million rows, from reading to the last figure. The file of the largest run takes about 1 GB.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.harness import RESULTS, target, write_csv

FILE_ROWS = 1_000_000
CLASSES = 10
PEAK = "\nprint(next(x.split()[1] for x in open('/proc/self/status') if x.startswith('VmHWM')))"
REPORT = "import sys\nfrom torch_boc.cli.app import run_command\nassert not run_command(sys.argv[1:])"
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


def run(code: str, *arguments: str) -> tuple[float, float]:
    """The seconds and the peak memory, in MB, of a process that runs this code.

    The process reads its own peak: what the system says of a child begins with the memory of its parent.
    """
    start = time.perf_counter()
    command = [sys.executable, "-c", code + PEAK, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, int(done.stdout.split()[-1]) / 1024


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
        _, libraries = run(LIBRARIES)
        for millions in args.millions:
            part = folder / f"id-{millions}"
            part.mkdir()
            for i in range(millions):
                (part / f"part-{i:03}.parquet").symlink_to(folder / "all" / f"part-{i:03}.parquet")
            options = ["--id", str(part), "--ood", f"far={folder / 'far'}", "--out", str(folder / "report"), "--quiet"]
            seconds, peak = run(REPORT, "report", *options)
            rows.append({"rows": millions * FILE_ROWS, "seconds": round(seconds, 1), "peak MB": round(peak)})
            rows[-1] |= {"libraries MB": round(libraries), "us/row": round(1e6 * seconds / (millions * FILE_ROWS), 3)}
            print(rows[-1])
    last = rows[-1]
    target("peak memory in GB of a report on the largest table", float(str(last["peak MB"])) / 1024, 2.0)
    times, sizes = ([float(str(row[name])) for row in rows] for name in ("seconds", "rows"))
    each = [(b - a) / (n - m) for (a, b), (m, n) in zip(pairwise(times), pairwise(sizes), strict=True)]
    target("time for each further row, largest tables over smallest", each[-1] / each[0], 1.5)
    write_csv(args.output, rows)


if __name__ == "__main__":
    main()
