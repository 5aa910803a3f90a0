"""Which way through the logits is the fastest on a CPU, by the number of classes: `python -m benchmarks.paths`.

Writes results/paths.csv: row blocks in torch's operations, which the path "torch" takes; the same on transposed blocks,
which nothing takes, for they gain a little with 2 and 4 classes and lose from 10 on; and the loop over rows and
transposed blocks of the native library, between which `torch_boc.kernels.cpu.interface.TALL_CLASSES` decides.
"""

import torch
from torch import Tensor

from benchmarks.harness import RESULTS, best_times, write_csv
from torch_boc.core.blocks import blockwise
from torch_boc.core.rows import sums_by_blocks
from torch_boc.kernels.cpu import interface
from torch_boc.kernels.cpu.calls import row_sums

CLASSES = (2, 4, 10, 20, 32, 40, 48, 56, 64, 100, 128)
LOGITS = 4_000_000


def transposed_sums(logits: Tensor) -> tuple[Tensor, ...]:
    """The sums of `core.rows`, with the classes first, so that every operation runs along the rows."""
    top, prediction = logits.max(-1)
    below = logits.T.contiguous().sub_(top)
    loses = below.sigmoid_().scatter_(0, prediction[None], 0.0)
    odds = torch.rsub(loses, 2.0**-100, alpha=2.0**-100)
    torch.div(loses, odds, out=odds)
    squares = loses.mul_(odds).sum(0).double() * 2.0**-100
    return prediction, top, odds.sum(0) * 2.0**-100, squares


def native_sums(logits: Tensor, *, tall: bool) -> list[Tensor]:
    """The sums by the native library, transposed or not."""
    before, interface.TALL_CLASSES = interface.TALL_CLASSES, logits.shape[-1] if tall else 0
    try:
        return row_sums(logits, False)
    finally:
        interface.TALL_CLASSES = before


def time_classes(classes: int) -> dict[str, object]:
    """Milliseconds for one batch of about four million logits."""
    logits = 4 * torch.randn(LOGITS // classes, classes, generator=torch.Generator().manual_seed(0))
    there = torch.empty_like(logits)
    contestants = {
        "softmax into": lambda: torch.softmax(logits, -1, out=there),
        "torch, rows": lambda: sums_by_blocks(logits, False),
        "torch, transposed": lambda: blockwise(transposed_sums, logits),
        "native, transposed": lambda: native_sums(logits, tall=True),
    }
    if classes >= interface.LANES:
        contestants["native, rows"] = lambda: native_sums(logits, tall=False)
    best = best_times(contestants, seconds=3)
    columns = ("softmax into", "torch, rows", "torch, transposed", "native, rows", "native, transposed")
    row = {name: round(1e3 * best[name], 3) if name in best else "" for name in columns}
    print(classes, row, flush=True)
    return {"rows": len(logits), "classes": classes, **row}


def main() -> None:
    """Run everything and write the table."""
    write_csv(RESULTS / "paths.csv", [time_classes(classes) for classes in CLASSES])


if __name__ == "__main__":
    main()
