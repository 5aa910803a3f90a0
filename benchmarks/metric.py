"""Time a metric update against the bare probe and against torchmetrics: `python -m benchmarks.metric`.

Writes results/metric.csv. The bare probe is coins and the log of p*; the update adds sums, histograms and labels to it.
Of torchmetrics, accuracy and calibration error are updated together. Small batches are timed 50 at a time, after which
the states are read: by torch's operations, a BoCMetric adds them together. The collection of `boc_metrics` reads the
states after each, and adds each by itself.
"""

from functools import partial

import torch
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

from benchmarks.harness import RESULTS, best_times, in_torch, ratio, target, write_csv
from benchmarks.probe import probe
from torch_boc import BoCMetric, boc_metrics
from torch_boc.functional.summary import DEFAULT_KEYS

SHAPES = ((64, 10), (128, 10), (256, 1_000), (8_192, 1_000), (100_000, 10))
SMALL, LARGE = SHAPES[0], SHAPES[-2:]
BATCHES, SMALL_LOGITS = 50, 2**18


def time_shape(rows: int, classes: int) -> dict[str, object]:
    """Milliseconds for one batch."""
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(rows, classes, generator=generator)
    labels = torch.randint(classes, (rows,), generator=generator)
    batches = BATCHES if logits.numel() <= SMALL_LOGITS else 1
    theirs = MulticlassCalibrationError(classes), MulticlassAccuracy(classes)

    def updates(*metrics: Metric | MetricCollection) -> None:
        for metric in metrics:
            metric.reset()
            for _ in range(batches):
                metric.update(logits, labels)
            if isinstance(metric, BoCMetric):
                metric.total()  # nothing waits any more

    ours, usual = BoCMetric(classes), BoCMetric(classes, keys=DEFAULT_KEYS)
    best = best_times(
        {
            "bare probe": lambda: [probe(logits) for _ in range(batches)],
            "BoCMetric": partial(updates, ours),
            "BoCMetric in torch": partial(in_torch(updates), ours),
            "default keys in torch": partial(in_torch(updates), usual),
            "boc_metrics in torch": partial(in_torch(updates), boc_metrics(num_classes=classes)),
            "torchmetrics": partial(updates, *theirs),
        }
    )
    return {"rows": rows, "classes": classes, **{name: round(1e3 * time / batches, 4) for name, time in best.items()}}


def main() -> None:
    """Run, print the targets, write the table."""
    rows = []
    for shape in SHAPES:
        row = time_shape(*shape)
        limits = {"torchmetrics": 1.0, **({"bare probe": 1.3} if shape in LARGE else {})}
        for baseline, limit in limits.items():
            target(f"BoCMetric.update / {baseline}, {shape}", ratio(row, "BoCMetric", baseline), limit)
        if shape == SMALL:
            measured = ratio(row, "default keys in torch", "torchmetrics")
            target(f"BoCMetric.update of the default keys by torch / torchmetrics, {shape}", measured, 1.0)
        for baseline in ("torchmetrics", "bare probe"):
            row[f"BoCMetric / {baseline}"] = round(ratio(row, "BoCMetric", baseline), 3)
        rows.append(row)
    write_csv(RESULTS / "metric.csv", rows)


if __name__ == "__main__":
    main()
