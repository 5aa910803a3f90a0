"""Check 8: a model whose halves are on two devices, through `BoCPredictor`."""

import torch
from torch import Tensor, nn

from ..inference import BoCPredictor
from .cases import other_cards
from .outcomes import Finding, check

SAMPLES, BATCH = 512, 32
SHAPES = ((16, 64), (64, 50))  # of the weights: the last number is that of the classes
SLEEP = 20_000_000  # cycles, about 10 ms: code that does not wait reads a table before it is ready
LIMIT = 1e-9
ONE_CARD = "there is one card only: the model is split over the card and the CPU"
ALL_ON_CPU = "both halves are on the CPU: nothing is copied between devices"


class Halves(nn.Module):
    """A classifier with its first layer on one device and its second layer on another."""

    def __init__(self, first: torch.device, second: torch.device) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        weights = [torch.randn(shape, generator=generator, dtype=torch.float64) / 8 for shape in SHAPES]
        self.first, self.second = nn.Parameter(weights[0].to(first)), nn.Parameter(weights[1].to(second))

    def forward(self, x: Tensor) -> Tensor:
        """The logits, on the second device; if that is a GPU, they come late."""
        hidden = (x @ self.first).relu().to(self.second.device)
        if hidden.device.type == "cuda":
            with torch.cuda.device(hidden.device):
                torch.cuda._sleep(SLEEP)
        return hidden @ self.second * 4


@check("split model", "BoCPredictor gives for a model on two devices what it gives for the same model on the CPU")
def split(device: torch.device) -> Finding:
    """Compare both orders of the two devices, in float64, so that the tables differ only by rounding."""
    cpu = torch.device("cpu")
    other = next(iter(other_cards(device)), cpu) if device != cpu else cpu
    expected = table(cpu, cpu)
    pairs = ((device, other), (other, device))
    off = {f"{first} to {second}": difference(table(first, second), expected) for first, second in pairs}
    note = "" if other != cpu else ALL_ON_CPU if device == cpu else ONE_CARD
    text = ", ".join(f"{pair}: {error:.1e}" for pair, error in off.items())
    return Finding(max(off.values()) <= LIMIT, f"largest differences {text}", note, off)


def table(first: torch.device, second: torch.device) -> dict[str, Tensor]:
    """All columns of all samples."""
    inputs = torch.randn(SAMPLES, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    predictor = BoCPredictor(Halves(first, second), progress=False, batch_size=BATCH)
    tables = list(predictor.predict(inputs))
    return {name: torch.cat([part[name] for part in tables]).double() for name in tables[0]}


def difference(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest difference of all columns; infinite if a sample is missing or a number is NaN."""
    if any(found[name].shape != expected[name].shape for name in expected):
        return float("inf")
    off = [(found[name] - expected[name]).abs().nan_to_num(torch.inf).max() for name in expected]
    return float(torch.stack(off).max())
