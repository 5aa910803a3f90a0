"""Draw a metric's plots for logits in a file: `python -m benchmarks.picture LOGITS.npz` writes results/metric.png.

The file has arrays `predictions` (N, C), probabilities as published with the netcal package, and `ground_truth` (N,).
"""

import sys

import numpy as np
import torch

from benchmarks.harness import RESULTS
from torch_boc import BoCMetric


def main(path: str) -> None:
    """Feed the record to a metric and draw it."""
    record = np.load(path)
    logits = torch.from_numpy(record["predictions"]).clamp_min(1e-30).log()
    metric = BoCMetric()
    metric.update(logits, torch.from_numpy(record["ground_truth"]).long().reshape(-1))
    figure, _ = metric.plot()
    figure.savefig(RESULTS / "metric.png", dpi=100)


if __name__ == "__main__":
    main(sys.argv[1])
