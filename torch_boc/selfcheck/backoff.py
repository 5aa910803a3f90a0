"""Check 10: a batch that does not fit in memory is halved until it does."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..inference import BoCPredictor
from .outcomes import Finding, check

SAMPLES, BATCH, CLASSES = 200, 100, 10
ROOM = 30  # samples that fit
SAMPLE_BYTES = 8 * 2**20  # what the model takes for each sample on a GPU


class Hungry(nn.Module):
    """A classifier that needs much memory for each sample; on a CPU it only raises the error.

    Attributes:
        calls: the number of samples in each call.
        greedy: whether it asks for memory at all.
    """

    def __init__(self, *, greedy: bool) -> None:
        super().__init__()
        weight = torch.randn(16, CLASSES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        self.weight, self.greedy, self.calls = nn.Parameter(weight), greedy, list[int]()

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        self.calls.append(len(x))
        if self.greedy and x.device.type == "cuda":
            torch.empty(len(x), SAMPLE_BYTES, dtype=torch.uint8, device=x.device)
        elif self.greedy and len(x) > ROOM:
            raise torch.OutOfMemoryError(f"expected at most {ROOM} samples, got {len(x)}")
        return x @ self.weight


@check("out of memory", f"BoCPredictor halves batches of {BATCH} samples until they fit, and loses none")
def back_off(device: torch.device) -> Finding:
    """On a GPU, torch may take memory for only some samples; on a CPU, the model itself refuses more samples."""
    expected = table(Hungry(greedy=False).to(device))
    hungry = Hungry(greedy=True).to(device)
    with limited_memory(device):
        found = table(hungry)
    samples, sizes = len(found["index"]), hungry.calls
    same = samples == SAMPLES and all(torch.equal(found[name], expected[name]) for name in ("index", "prediction"))
    off = float((found["gap"] - expected["gap"]).abs().max()) if same else float("inf")
    halved = max(sizes) == BATCH and min(sizes) < BATCH
    pieces = ", ".join(map(str, dict.fromkeys(sizes)))
    text = f"{samples} of {SAMPLES} samples, in pieces of {pieces}; gaps differ by {off:.1e}"
    note = "" if halved else "memory never ran out, so that nothing was checked"
    return Finding(same and halved and off <= 1e-9, text, note, {"pieces": sizes})


def table(model: Hungry) -> dict[str, Tensor]:
    """The columns of all samples."""
    inputs = torch.randn(SAMPLES, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    tables = list(BoCPredictor(model, progress=False, batch_size=BATCH).predict(inputs))
    return {name: torch.cat([part[name] for part in tables]) for name in tables[0]}


@contextmanager
def limited_memory(device: torch.device) -> Iterator[None]:
    """Let torch take no more memory of a GPU than it has now plus what `ROOM` samples need."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(device).total_memory
    most = torch.cuda.memory_reserved(device) + ROOM * SAMPLE_BYTES
    torch.cuda.set_per_process_memory_fraction(min(1.0, most / total), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        torch.cuda.empty_cache()
