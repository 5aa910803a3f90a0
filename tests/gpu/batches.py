"""Logits and targets that are the same on every machine."""

import torch
from torch import Tensor


def make_logits(*shape: int, dtype: torch.dtype = torch.float32, device="cpu", scale: float = 3.0) -> Tensor:
    """Normal logits, drawn on the CPU by a fixed seed and rounded to `dtype`."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).mul(scale).to(dtype).to(device)


def make_batch(rows: int, classes: int, *, device="cpu", **options) -> tuple[Tensor, Tensor]:
    """Logits, and targets of every class."""
    target = torch.arange(rows) * 7 % classes
    return make_logits(rows, classes, device=device, **options), target.to(device)
