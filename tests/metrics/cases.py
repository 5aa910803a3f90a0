"""Batches that the tests of the metrics share."""

import torch
from torch import Tensor


def labelled_batches(*sizes: int, classes: int = 7, seed: int = 0, dtype: torch.dtype = torch.float64) -> list:
    """Logits of every confidence, with targets that are right about two times in three."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for size in sizes:
        scale = 8 * torch.rand(size, 1, generator=generator, dtype=torch.float64)
        logits = (scale * torch.randn(size, classes, generator=generator, dtype=torch.float64)).to(dtype)
        guess = torch.randint(classes, (size,), generator=generator)
        right = torch.rand(size, generator=generator) < 0.6
        batches.append((logits, torch.where(right, logits.argmax(-1), guess)))
    return batches


def ood_batches(*sizes: int, classes: int = 7, seed: int = 0) -> list:
    """Sharp in-distribution and flat out-of-distribution logits, mixed, with a flag each."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for size in sizes:
        ood = torch.rand(size, generator=generator) < 0.4
        scale = torch.where(ood, 1.0, 3.0).unsqueeze(-1)
        batches.append((scale * torch.randn(size, classes, generator=generator, dtype=torch.float64), ood))
    return batches


def joined(batches: list) -> tuple[Tensor, Tensor]:
    """All batches as one."""
    first, second = zip(*batches, strict=True)
    return torch.cat(first), torch.cat(second)
