"""What several checks share: logits that are the same on every machine, and which cards there are."""

import torch
from torch import Tensor

from .outcomes import SkippedError


def make_logits(
    *shape: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu", scale: float = 3.0
) -> Tensor:
    """Normal logits, drawn on the CPU by a fixed seed and rounded to `dtype`, on `device`."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).mul(scale).to(dtype).to(device)


def make_target(rows: int, classes: int, device: torch.device | str = "cpu") -> Tensor:
    """Targets of every class."""
    return (torch.arange(rows) * 7 % classes).to(device)


def other_cards(device: torch.device) -> list[torch.device]:
    """All CUDA devices except `device`."""
    return [torch.device("cuda", i) for i in range(torch.cuda.device_count()) if i != device.index]


def need_cuda(device: torch.device, reason: str) -> None:
    """Skip the check on a CPU."""
    if device.type != "cuda":
        raise SkippedError(f"needs a CUDA device, and this is the CPU: {reason}")


def describe(*shape: int, dtype: torch.dtype) -> str:
    """A shape and a dtype in words, such as "64 x 1,000 bfloat16"."""
    return f"{' x '.join(f'{n:,}' for n in shape)} {str(dtype).removeprefix('torch.')}"
