"""A model, its inputs, and what the predictor must say of them."""

import pyarrow.parquet as parquet
import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from tests.nn.models import linear
from torch_boc import BoCPredictor
from torch_boc.functional import sample_columns

SAMPLES = 23


class Counting(nn.Module):
    """Five classes; remembers how many samples came in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()
        self.calls: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        self.calls.append(len(x))
        return self.layer(x)


class Hungry(Counting):
    """Runs out of memory above `room` samples."""

    def __init__(self, room: int, error: Exception | None = None) -> None:
        super().__init__()
        self.room, self.error = room, error or torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits = super().forward(x)
        if len(x) > self.room:
            raise self.error
        return logits


def data(samples: int = SAMPLES) -> tuple[Tensor, Tensor]:
    """Inputs and targets."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(samples, 3, generator=generator), torch.randint(5, (samples,), generator=generator)


def predictor(model: nn.Module | None = None, **options) -> BoCPredictor:
    """A predictor without a progress bar."""
    return BoCPredictor(Counting() if model is None else model, progress=False, **options)


def reused(x: Tensor, memory: Tensor):
    """Batches of `x` that come one after the other in the same memory."""
    for part in x.split(len(memory)):
        yield memory.copy_(part)


def joined(tables) -> dict[str, Tensor]:
    """All tables as one."""
    tables = list(tables)
    return {name: torch.cat([table[name] for table in tables]) for name in tables[0]}


@torch.no_grad()
def rows_of(logits: Tensor, target: Tensor | None = None, **options) -> dict[str, Tensor]:
    """What a predictor writes of logits: in float32 what does not need the range of float64."""
    found = sample_columns(logits, target, **options)
    return {name: x if name in ("prediction", "odds", "loss") else x.float() for name, x in found.items()}


def expected(logits: Tensor, target: Tensor | None = None, **options) -> dict[str, Tensor]:
    """The table of `logits`."""
    given = {} if target is None else {"target": target}
    return {"index": torch.arange(len(logits)), **given, **rows_of(logits, target, **options)}


def assert_same(table: dict[str, Tensor], other: dict[str, Tensor], *, rtol: float = 1e-4) -> None:
    """The same columns in the same order; a network's float32 depends a little on the size of the batch."""
    assert list(table) == list(other)
    for name, value in table.items():
        torch.testing.assert_close(value, other[name], rtol=rtol, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


class Stream(IterableDataset):
    """All samples, one after the other."""

    def __iter__(self):
        yield from zip(*data(), strict=True)


class Loader:
    """Batches of known number, of which the one after `healthy` batches is an interruption."""

    def __init__(self, healthy: int | None = None, size: int = 4, samples: int = SAMPLES) -> None:
        x, y = data(samples)
        self.batches = list(zip(x.split(size), y.split(size), strict=True))
        self.healthy = healthy

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self):
        for i, batch in enumerate(self.batches):
            if i == self.healthy:
                raise KeyboardInterrupt
            yield batch


def read(path) -> dict[str, Tensor]:
    """A Parquet file as a table."""
    table = parquet.read_table(path)
    return {name: torch.tensor(table[name].to_numpy()) for name in table.column_names}


def files(folder) -> list[str]:
    """The names in a folder."""
    return sorted(path.name for path in folder.iterdir())
