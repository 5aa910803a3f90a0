"""Run a classifier over a Ray dataset on a cluster, write one row per sample, and sum the rows up.

    python examples/ray_batch_inference.py --input s3://bucket/samples --output s3://bucket/rows --workers 8 --gpus 1
    python examples/ray_batch_inference.py --smoke        # a random network on noise, on this machine, offline

The input is a folder of Parquet files with a column `x` of arrays, `path`, and `label`. If the program is killed, call
it again: it resumes.
"""

import argparse
import tempfile
from pathlib import Path

import numpy
import pyarrow
import pyarrow.parquet
import ray
import torch

from torch_boc.ray import predict, summarize

WIDTH, CLASSES = 32, 10


def make_model() -> torch.nn.Module:
    """The classifier. Each worker calls this once; load your weights here."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES))


def write_noise(folder: Path, rows: int = 400) -> Path:
    """A folder of samples that are noise."""
    random = numpy.random.default_rng(0)
    x = random.normal(size=(rows, WIDTH)).astype("float32")
    names = [f"{i:04}.png" for i in range(rows)]
    columns = {"x": pyarrow.FixedShapeTensorArray.from_numpy_ndarray(x), "path": names}
    table = pyarrow.table({**columns, "label": random.integers(0, CLASSES, rows)})
    folder.mkdir(parents=True)
    pyarrow.parquet.write_table(table, folder / "noise.parquet")
    return folder


def main() -> None:
    """Predict, write, and show the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", help="a folder of Parquet files")
    parser.add_argument("--output", default="rows", help="a folder that all nodes share")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--gpus", type=float, default=0, help="of each worker")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if not args.smoke and args.input is None:
        parser.error("give --input, or --smoke")
    source = str(write_noise(Path(tempfile.mkdtemp()) / "noise")) if args.smoke else args.input

    path = predict(
        ray.data.read_parquet(source),
        make_model,
        args.output,
        inputs="x",
        target="label",
        id="path",
        workers=args.workers,
        num_gpus=args.gpus,
        batch_size=args.batch_size,
        resume=True,
    )
    summary = summarize(ray.data.read_parquet(path))
    for name in ("samples", "accuracy", "confidence", "dominance", "gap", "free_gap", "concentration"):
        print(f"{name:14} {summary[name].item():.4f}")


if __name__ == "__main__":
    main()
