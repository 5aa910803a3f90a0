"""Time `evaluate` on a million samples: `python -m benchmarks.evaluation`. Writes results/evaluation.csv.

A million test and a million unfamiliar samples of ten classes, a calibration split of a hundred thousand, every score,
a thousand replicates. Each stage is what `evaluate` says that it begins.
"""

import argparse
import resource
import time
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.harness import RESULTS, target, write_csv
from torch_boc.evaluation import evaluate

SECONDS = 60.0


def logits_and_target(samples: int, classes: int, *, signal: float, seed: int) -> tuple[Tensor, Tensor]:
    """Logits whose target is lifted by `signal`, and the targets."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (samples,), generator=generator)
    logits = torch.randn(samples, classes, generator=generator).mul_(2.5)
    logits[torch.arange(samples), labels] += signal
    return logits, labels


def peak_memory() -> float:
    """The largest that this process has been, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Stopwatch:
    """Takes the time of each stage that it is told begins."""

    def __init__(self) -> None:
        self.started = [("start", time.perf_counter())]
        self.processor = time.process_time()

    def __call__(self, stage: str) -> None:
        stage = stage.partition(", step ")[0]
        if stage == self.started[-1][0]:
            return
        self.started.append((stage, time.perf_counter()))
        print(f"{self.started[-1][1] - self.started[0][1]:7.2f} s  {stage}", flush=True)

    def rows(self) -> list[dict[str, object]]:
        """Seconds of each stage."""
        ends = [moment for _, moment in self.started[1:]] + [time.perf_counter()]
        return [
            {"stage": stage, "seconds": round(end - start, 3)}
            for (stage, start), end in zip(self.started, ends, strict=True)
        ]


def main() -> None:
    """Run once, print the target, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000_000, help="in the test set, and as many unfamiliar ones")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--output", type=Path, default=RESULTS / "evaluation.csv")
    args = parser.parse_args()
    test = logits_and_target(args.samples, args.classes, signal=8.0, seed=0)
    ood = logits_and_target(args.samples, args.classes, signal=0.0, seed=1)[0]
    split = logits_and_target(args.samples // 10, args.classes, signal=8.0, seed=2)
    evaluate((test[0][:99], test[1][:99]), ood[:99], calibration=(split[0][:99], split[1][:99]))  # imports everything
    before = peak_memory()
    watch = Stopwatch()
    evaluate(test, ood, calibration=split, progress=watch)
    rows, processor = watch.rows(), time.process_time() - watch.processor
    seconds = sum(float(str(row["seconds"])) for row in rows)
    data = sum(x.numel() * x.element_size() for x in (*test, ood, *split)) / 2**20
    extra = peak_memory() - before
    rows.append({"stage": f"all, of 2 x {args.samples:,} x {args.classes} logits", "seconds": round(seconds, 3)})
    rows = [row | {"processor seconds": "", "peak memory, MB": ""} for row in rows]
    rows[-1]["processor seconds"] = round(processor, 3)  # on a busy machine the other number waits for others
    rows[-1]["peak memory, MB"] = f"{extra:.0f} beside {data:.0f} of data"
    print(f"{processor:7.2f} s of the processor", flush=True)
    target(f"seconds, with {extra:.0f} MB beside {data:.0f} MB of data", seconds, SECONDS)
    write_csv(args.output, rows)


if __name__ == "__main__":
    main()
