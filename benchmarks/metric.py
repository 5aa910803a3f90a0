"""Time a metric update against the bare probe and against torchmetrics: `python -m benchmarks.metric`.

Writes results/metric.csv. The bare probe is coins and the log of p*; the update adds sums, histograms and labels to it.
"""

from functools import partial

import torch
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

from benchmarks.harness import RESULTS, best_times, ratio, target, write_csv
from benchmarks.probe import in_cpp, probe
from torch_boc import BoCMetric

SHAPES = ((8_192, 1_000), (100_000, 10))


def time_shape(rows: int, classes: int) -> dict[str, object]:
    """Milliseconds for one batch; torchmetrics' metrics are reset each time, for one of them keeps all samples."""
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(rows, classes, generator=generator)
    labels = torch.randint(classes, (rows,), generator=generator)
    ours = BoCMetric(classes)
    theirs = MulticlassCalibrationError(classes), MulticlassAccuracy(classes)

    def torchmetrics_update() -> None:
        for metric in theirs:
            metric.update(logits, labels)
            metric.reset()

    best = best_times(
        {
            "bare probe": lambda: probe(logits),
            "BoCMetric": lambda: ours.update(logits, labels),
            "bare probe in C++": partial(in_cpp(probe), logits),
            "BoCMetric in C++": partial(in_cpp(ours.update), logits, labels),
            "torchmetrics": torchmetrics_update,
        }
    )
    return {"rows": rows, "classes": classes, **{name: round(1e3 * time, 3) for name, time in best.items()}}


def main() -> None:
    """Run, print the target, write the table."""
    rows = []
    for shape in SHAPES:
        row = time_shape(*shape)
        target(f"BoCMetric.update / bare probe, {shape}", ratio(row, "BoCMetric", "bare probe"), 1.5)
        row["BoCMetric / bare probe"] = round(ratio(row, "BoCMetric", "bare probe"), 3)
        for name in ("BoCMetric", "BoCMetric in C++"):
            row[f"{name} / torchmetrics"] = round(ratio(row, name, "torchmetrics"), 3)
        rows.append(row)
    write_csv(RESULTS / "metric.csv", rows)


if __name__ == "__main__":
    main()
