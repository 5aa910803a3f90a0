"""Time `BoCPredictor` against a bare inference loop: `python -m benchmarks.predictor`. Writes results/predictor.csv.

The bare loop is a forward pass and an argmax a batch, collected: the least that any batch inference does.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torchvision.models import resnet18

from benchmarks.harness import RESULTS, best_times, ratio, target, write_csv
from torch_boc import BoCPredictor


@torch.inference_mode()
def bare_loop(model: nn.Module, batches: list[Tensor]) -> Tensor:
    """Predictions and nothing else."""
    return torch.cat([model(x).argmax(-1) for x in batches])


def time_size(batch_size: int, *, batches: int = 4, seconds: float = 60.0) -> dict[str, object]:
    """Milliseconds for each batch of 64 x 64 images, with 1,000 classes."""
    torch.manual_seed(0)
    model = resnet18().eval()
    loader = [torch.randn(batch_size, 3, 64, 64) for _ in range(batches)]
    predictor = BoCPredictor(model, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples.parquet"
        best = best_times(
            {
                "bare loop": lambda: bare_loop(model, loader),
                "predict": lambda: list(predictor.predict(loader)),
                "to_parquet": lambda: predictor.to_parquet(loader, path),
            },
            seconds=seconds,
        )
    return {"batch": batch_size, **{name: round(1e3 * time / batches, 3) for name, time in best.items()}}


def main() -> None:
    """Run, print the targets, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each batch size")
    parser.add_argument("--output", type=Path, default=RESULTS / "predictor.csv")
    args = parser.parse_args()
    rows = []
    for batch_size in (32, 128):
        row = time_size(batch_size, seconds=args.seconds)
        for name in ("predict", "to_parquet"):
            over = ratio(row, name, "bare loop")
            target(f"{name} / bare loop, ResNet-18 at 64 x 64, batches of {batch_size}", over, 1.02)
            row[f"{name} / bare loop"] = round(over, 4)
        rows.append(row)
    write_csv(args.output, rows)


if __name__ == "__main__":
    main()
