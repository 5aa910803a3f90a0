"""Time `BoCPredictor.to_parquet` against the loop that a user writes: `python -m benchmarks.predictor`.

The loop keeps softmax and argmax of each batch, and writes three columns to Parquet; the predictor writes all of its
columns. Both in wall time and in CPU seconds of the process. Writes results/predictor.csv.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow
import pyarrow.parquet
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import resnet18

from benchmarks.harness import RESULTS, target, write_csv
from torch_boc import BoCPredictor

BATCH = 64


@torch.inference_mode()
def plain_loop(model: nn.Module, data: TensorDataset, path: Path) -> None:
    """The predictions and their confidence."""
    confidence, prediction = torch.cat([model(x).softmax(-1) for (x,) in DataLoader(data, BATCH)]).max(-1)
    columns = {"index": torch.arange(len(prediction)), "prediction": prediction, "confidence": confidence}
    pyarrow.parquet.write_table(pyarrow.table({name: x.numpy() for name, x in columns.items()}), path)


def mlp() -> tuple[nn.Module, TensorDataset]:
    """A model that costs next to nothing, on 100,000 samples of 10 classes."""
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    return model.eval(), TensorDataset(torch.randn(100_000, 32))


def resnet() -> tuple[nn.Module, TensorDataset]:
    """ResNet-18 on 1,024 images of 64 x 64, with 1,000 classes; the checksum of its parameters is made once."""
    return resnet18().eval(), TensorDataset(torch.randn(1024, 3, 64, 64))


# The ratios to the loop that are asked for: of wall time, and of CPU seconds.
CASES = {"MLP, 100,000 x 10": (mlp, 1.15, 1.5), "ResNet-18, 64 x 64": (resnet, 1.05, 1.5)}


def best_costs(contestants: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, tuple[float, float]]:
    """The shortest wall time and the fewest CPU seconds of each, over rounds in which all of them have a turn."""
    best = dict.fromkeys(contestants, (float("inf"), float("inf")))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, run in contestants.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            best[name] = min(best[name][0], time.perf_counter() - wall), min(best[name][1], time.process_time() - cpu)
    return best


def main() -> None:
    """Run, print the targets, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each model")
    parser.add_argument("--output", type=Path, default=RESULTS / "predictor.csv")
    args = parser.parse_args()
    rows = []
    for name, (make, most_wall, most_cpu) in CASES.items():
        torch.manual_seed(0)
        model, data = make()
        predictor = BoCPredictor(model, progress=False, batch_size=BATCH)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "samples.parquet"
            contestants: dict[str, Callable[[], object]] = {
                "loop": lambda model=model, data=data, path=path: plain_loop(model, data, path),
                "to_parquet": lambda it=predictor, data=data, path=path: it.to_parquet(data, path),
            }
            for run in contestants.values():
                run()
            best = best_costs(contestants, args.seconds)
        (loop, loop_cpu), (ours, ours_cpu) = best["loop"], best["to_parquet"]
        target(f"to_parquet / loop, {name}, wall", ours / loop, most_wall)
        target(f"to_parquet / loop, {name}, CPU", ours_cpu / loop_cpu, most_cpu)
        times = {"loop, ms": loop, "to_parquet, ms": ours, "loop, CPU ms": loop_cpu, "to_parquet, CPU ms": ours_cpu}
        ratios = {"wall ratio": round(ours / loop, 3), "CPU ratio": round(ours_cpu / loop_cpu, 3)}
        rows.append({"model": name, **{key: round(1e3 * x, 2) for key, x in times.items()}, **ratios})
    write_csv(args.output, rows)


if __name__ == "__main__":
    main()
