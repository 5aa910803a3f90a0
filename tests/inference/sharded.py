"""A process that writes a table: `python -m tests.inference.sharded PATH SAMPLE [single]`.

It is one of several that write a folder, or writes a single file. It says when it comes to the sample, and waits there.
"""

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.data import Dataset

from tests.nn.models import linear
from torch_boc import BoCPredictor
from torch_boc.inference import batches, resume

SAMPLES, BATCH = 1001, 10


class Images(Dataset):
    """Samples with a name; before one of them is given, something may be done."""

    def __init__(self, samples: int = SAMPLES, at: int = 35, action: Callable[[], object] | None = None) -> None:
        self.x = torch.randn(samples, 3, generator=torch.Generator().manual_seed(1))
        self.at, self.action = at, action

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, int, str]:
        if i == self.at and self.action is not None:
            self.action()
        return self.x[i], i % 5, f"image {i}"


def predictor(shard: str | tuple[int, int] | None = "auto", **options) -> BoCPredictor:
    """The predictor of one process."""
    return BoCPredictor(linear(), progress=False, batch_size=BATCH, id="path", shard=shard, **options)


if __name__ == "__main__":
    path, at, single = sys.argv[1], int(sys.argv[2]), "single" in sys.argv
    resume.PART_ROWS, batches.GROUP_SECONDS = 100, 0.0  # each batch is written at once
    images = Images(at=at, action=lambda: print("waiting", flush=True) or time.sleep(600))  # noqa: T201
    predictor(None if single else "auto").to_parquet(images, path, resume=single)
