"""What the launches must know of a GPU. It is asked of torch, which knows it without waiting for the GPU."""

import torch
from torch import Tensor

from ...core.tails import continued_steps

# Up to this many trials, pairs of float32 are exact enough for a tail: their error grows with the trials.
MOST_TRIALS_IN_PAIRS = 1000
# NVIDIA's GPUs with as many units for float64 as half of those for float32: P100, V100, A100, H100, B200.
FAST_FLOAT64 = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))


def processors(device: torch.device) -> int:
    """How many multiprocessors a GPU has, without waiting for it; 1 on other devices, where no row is split."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def fraction_steps(x: Tensor, trials: int) -> int:
    """The steps of the continued fraction of a tail, negative where pairs of float32 are faster than float64."""
    steps = continued_steps(trials)
    return -steps if trials <= MOST_TRIALS_IN_PAIRS and has_slow_float64(x.device) else steps


def has_slow_float64(device: torch.device) -> bool:
    """Whether a GPU computes float64 32 or more times as slowly as float32, as all but NVIDIA's largest cards do."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) not in FAST_FLOAT64
