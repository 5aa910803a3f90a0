"""Calibration splits that the tests share."""

import numpy as np
import scipy.special
import torch
from torch import Tensor


def drawn_split(
    samples: int = 2000, classes: int = 5, *, temperature: float = 1.0, scale: float = 3.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Logits, and targets drawn from their softmax at `temperature`: calibrated once divided by it."""
    generator = torch.Generator().manual_seed(seed)
    logits = temperature * scale * torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    target = torch.multinomial((logits / temperature).softmax(1), 1, generator=generator).squeeze(1)
    return logits, target


def mean_nll(logits: Tensor, target: Tensor, temperature: float = 1.0) -> float:
    """The mean negative log-likelihood of the targets, by SciPy."""
    scaled = logits.double().numpy() / temperature
    own = scaled[np.arange(len(scaled)), target.numpy()]
    return float((scipy.special.logsumexp(scaled, axis=1) - own).mean())
