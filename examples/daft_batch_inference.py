"""Run a classifier over a Daft data frame with a batch method, with the numbers of the probe as columns.

    python examples/daft_batch_inference.py        # a random network on noise, on this machine, offline

It needs Daft (pip install daft). `BoCBatchPredictor` is the same class that `torch_boc.ray` sends to its workers:
arrays in, arrays out.
"""

import argparse

import daft
import numpy
import pyarrow
import torch
from daft import DataType

from torch_boc.inference import BoCBatchPredictor

WIDTH, CLASSES = 32, 10
REAL = DataType.float64()
COLUMNS = {"prediction": DataType.int64(), "confidence": REAL, "dominance": REAL, "gap": REAL}


def make_model() -> torch.nn.Module:
    """The classifier. Each worker calls this once; load your weights here."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES))


@daft.cls(max_concurrency=1)  # how many copies of the model there are; on GPUs, add gpus=1
class Probe:
    """A classifier with the probe, in each worker of Daft."""

    def __init__(self) -> None:
        self.predictor = BoCBatchPredictor(make_model, columns=list(COLUMNS))

    @daft.method.batch(return_dtype=DataType.struct(COLUMNS), batch_size=64)
    def predict(self, x: daft.Series):
        """The columns of a batch, as a column of structs."""
        rows = numpy.stack(x.to_pylist()).astype("float32")
        table = self.predictor({"x": rows})
        return pyarrow.StructArray.from_arrays([pyarrow.array(column) for column in table.values()], list(table))


def main() -> None:
    """Predict, and write or show the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", help="a folder for Parquet files; by default rows are shown")
    parser.add_argument("--rows", type=int, default=200)
    args = parser.parse_args()
    x = numpy.random.default_rng(0).normal(size=(args.rows, WIDTH))
    frame = daft.from_pydict({"path": [f"{i:04}.png" for i in range(args.rows)], "x": x.tolist()})
    frame = frame.with_column("probe", Probe().predict(frame["x"]))
    rows = frame.select("path", *(frame["probe"][name].alias(name) for name in COLUMNS))
    if args.output:
        rows.write_parquet(args.output)
    else:
        rows.sort("gap", desc=True).show(5)


if __name__ == "__main__":
    main()
