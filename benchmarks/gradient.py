"""Time the probe with its gradient against softmax with its gradient.

`make bench`, or `python -m benchmarks.gradient`; writes results/gradient.csv. What a training loop would call: the mean
gap, or the mean concentration, and backward to the logits. Softmax gets a gradient of its own shape that is there
already, and writes as large a result.
"""

import torch
from torch import Tensor

from benchmarks.harness import RESULTS, best_times, ratio, target, write_csv
from torch_boc.functional import bag_of_coins
from torch_boc.kernels import use

SHAPES = ((64, 10), (100_000, 10), (65_536, 100), (16_384, 1_000), (512, 50_257))
DTYPES = (torch.float32, torch.bfloat16)
LIMIT = 2.5  # where there are 1,000 classes


def mean_of(name: str, logits: Tensor, path: str = "auto") -> None:
    """Forward and backward of the mean of one number of the coins."""
    logits.grad = None
    with use(path):
        getattr(bag_of_coins(logits), name).mean().backward()


def softmax(logits: Tensor, given: Tensor) -> None:
    """Forward and backward of softmax, from a given gradient."""
    logits.grad = None
    logits.softmax(-1).backward(given)


def time_shape(rows: int, classes: int, dtype: torch.dtype) -> dict[str, object]:
    """The times of all contestants on one batch of logits, in milliseconds."""
    generator = torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(rows, classes, generator=generator)).to(dtype).requires_grad_()
    given = torch.randn(rows, classes, generator=generator).to(dtype)
    best = best_times(
        {
            "softmax": lambda: softmax(logits, given),
            "gap": lambda: mean_of("gap", logits),
            "concentration": lambda: mean_of("concentration", logits),
            "gap by torch": lambda: mean_of("gap", logits, "torch"),
        }
    )
    milliseconds = {name: round(1e3 * time, 3) for name, time in best.items()}
    return {"rows": rows, "classes": classes, "dtype": str(dtype).removeprefix("torch."), **milliseconds}


def main() -> None:
    """Run everything, print the targets, write the results."""
    rows = []
    for dtype in DTYPES:
        for shape in SHAPES:
            row = time_shape(*shape, dtype)
            rows.append(row)
            for name in ("gap", "concentration"):
                where = f"mean {name} / softmax, forward and backward, {shape} {row['dtype']}"
                value = ratio(row, name, "softmax")
                if shape == (16_384, 1_000):
                    target(where, value, LIMIT)
                else:
                    print(f"{'':7} {value:7.3f}                  {where}", flush=True)
    write_csv(RESULTS / "gradient.csv", rows)


if __name__ == "__main__":
    main()
