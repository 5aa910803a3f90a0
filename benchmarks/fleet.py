"""Time `torch_boc.ray.predict` against `BoCPredictor.to_parquet`: `python -m benchmarks.fleet`. Writes fleet.csv.

The same images in Parquet files, the same network, one thread of torch for each worker, everything on this machine.
Each way predicts a few and many rows. The difference gives the time of a row, and what is left of the few is the start:
Ray starts processes, which import torch and make the model. The ways take turns, and the best turn of each counts.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet
import ray
import torch
from torchvision.models import resnet18

from benchmarks.harness import RESULTS, target, write_csv
from torch_boc import BoCPredictor
from torch_boc.ray import predict

SIDE, BATCH = 64, 64
PLAIN, ONE, TWO = "BoCPredictor.to_parquet", "ray.predict, 1 worker", "ray.predict, 2 workers"


def make_model() -> torch.nn.Module:
    """A random ResNet-18 with 1,000 classes."""
    torch.manual_seed(0)
    return resnet18()


def write_images(folder: Path, rows: int) -> Path:
    """Images of noise, one batch in each row group."""
    folder.mkdir()
    random = numpy.random.default_rng(0)
    for start in range(0, rows, BATCH):
        x = random.normal(size=(BATCH, 3, SIDE, SIDE)).astype("float32")
        names = [f"{start + i:06}.png" for i in range(BATCH)]
        table = pyarrow.table({"x": pyarrow.FixedShapeTensorArray.from_numpy_ndarray(x), "path": names})
        pyarrow.parquet.write_table(table, folder / f"{start:06}.parquet", compression="none")
    return folder


class Batches:
    """The batches of a folder, as a loader gives them."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.iterdir())

    def __iter__(self) -> Iterator[tuple[torch.Tensor, None, list[str]]]:
        for file in self.files:
            table = pyarrow.parquet.read_table(file)
            x = table["x"].combine_chunks().to_numpy_ndarray()
            yield torch.tensor(x), None, table["path"].to_pylist()


def ways(scratch: Path) -> dict[str, Callable[[Path], object]]:
    """What is compared, as functions of the folder of images. Each call writes to a path of its own."""
    fresh = (scratch / f"rows-{i}" for i in count())

    def plain(folder: Path) -> object:
        predictor = BoCPredictor(make_model(), progress=False, id="path")
        return predictor.to_parquet(Batches(folder), next(fresh).with_suffix(".parquet"))

    def on_ray(folder: Path, workers: int) -> object:
        options: Any = {"inputs": "x", "id": "path", "batch_size": BATCH, "block_rows": BATCH, "workers": workers}
        return predict(ray.data.read_parquet(str(folder)), make_model, next(fresh), **options)

    return {PLAIN: plain, ONE: lambda folder: on_ray(folder, 1), TWO: lambda folder: on_ray(folder, 2)}


def best_turns(few: Path, many: Path, scratch: Path, repeats: int) -> dict[tuple[str, Path], float]:
    """The shortest time of each way for each folder, in seconds."""
    best: dict[tuple[str, Path], float] = {}
    for _ in range(repeats):
        for name, run in ways(Path(tempfile.mkdtemp(dir=scratch))).items():
            for folder in (few, many):
                start = time.perf_counter()
                run(folder)
                seconds = time.perf_counter() - start
                best[name, folder] = min(best.get((name, folder), seconds), seconds)
    return best


def measure(scratch: Path, few_rows: int, many_rows: int, repeats: int) -> list[dict[str, Any]]:
    """A row of the table for each way."""
    few, many = write_images(scratch / "few", few_rows), write_images(scratch / "many", many_rows)
    best = best_turns(few, many, scratch, repeats)
    rows = []
    for name in (PLAIN, ONE, TWO):
        each = (best[name, many] - best[name, few]) / (many_rows - few_rows)
        if each <= 0:
            raise SystemExit(f"{name} took longer for few rows than for many: the machine is busy; use an idle one")
        begin = best[name, few] - few_rows * each
        rows.append({"way": name, "start in s": round(begin, 2), "ms per row": round(1e3 * each, 4)})
    plain, one, two = (row["ms per row"] for row in rows)
    rows[1]["per row / to_parquet"] = round(one / plain, 3)
    rows[2]["per row / to_parquet"] = round(two / plain, 3)
    rows[2]["efficiency of 2 workers"] = round(one / (2 * two), 3)
    return rows


def main() -> None:
    """Run, print the targets, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", type=int, default=2 * BATCH, help=f"rows, a multiple of {BATCH}")
    parser.add_argument("--many", type=int, default=24 * BATCH, help=f"rows, a multiple of {BATCH}")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS / "fleet.csv")
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # More CPUs than there are workers, so that reading and writing never wait for one; they use little.
    ray.init(address="local", num_cpus=6, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), args.few, args.many, args.repeats)
    ray.shutdown()
    for row in rows:
        print(row, flush=True)
    target("time of a row, ray.predict with 1 worker / to_parquet", rows[1]["per row / to_parquet"], 1.10)
    target("2 x time of a row with 2 workers / with 1 worker", 1 / rows[2]["efficiency of 2 workers"], 1.25)
    names = dict.fromkeys(name for row in rows for name in row)
    write_csv(args.output, [{name: row.get(name, "") for name in names} for row in rows])


if __name__ == "__main__":
    main()
