"""A process of its own that writes a resumed table: `python -m tests.inference.writer PATH SECONDS_TO_WAIT`."""

import sys
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from torch_boc import BoCPredictor
from torch_boc.inference import part_files


def model() -> nn.Module:
    """The same in every process."""
    torch.manual_seed(0)
    return nn.Linear(3, 5)


def batches() -> list[Tensor]:
    """Six batches of four samples."""
    return list(torch.randn(24, 3, generator=torch.Generator().manual_seed(1)).split(4))


class Slow:
    """Says where it is, and waits at the third batch."""

    def __len__(self) -> int:
        return len(batches())

    def __iter__(self) -> Iterator[Tensor]:
        for place, batch in enumerate(batches()):
            sys.stdout.write(f"batch {place}\n")
            sys.stdout.flush()
            time.sleep(float(sys.argv[2]) if place == 2 else 0)
            yield batch


if __name__ == "__main__":
    part_files.PART_ROWS = 4
    BoCPredictor(model(), progress=False).to_parquet(Slow(), sys.argv[1], resume=True)
