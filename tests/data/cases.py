"""Small sets of logits that look like those of a classifier."""

import torch
from torch import Tensor

from torch_boc.evaluation import LogitSet


def labelled(samples: int = 600, classes: int = 5, *, seed: int = 0, signal: float = 3.0) -> tuple[Tensor, Tensor]:
    """Logits whose target is lifted by `signal`, and the targets."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(classes, (samples,), generator=generator)
    noise = 1.5 * torch.randn(samples, classes, generator=generator)
    return noise + signal * torch.eye(classes)[target], target


def ood_logits(samples: int = 500, classes: int = 5, *, seed: int = 1) -> Tensor:
    """Logits without any signal."""
    return labelled(samples, classes, seed=seed, signal=0.0)[0]


def logit_sets(samples: int = 600, classes: int = 5) -> tuple[LogitSet, LogitSet]:
    """A test set and an OOD set."""
    return LogitSet(*labelled(samples, classes), name="id"), LogitSet(ood_logits(samples, classes), name="ood")
