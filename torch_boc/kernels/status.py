"""Which paths there are on this machine, and why one is missing; `torch-boc doctor` shows it."""

from typing import NamedTuple

import torch

from .cpu import library
from .cpu.openmp import openmp
from .trial import problem
from .triton.launch import HAS_TRITON


class Path(NamedTuple):
    """One way of computing.

    Attributes:
        name: the name of the path, as in `use`.
        device: the type of device on which it computes.
        why_not: why it is not available, with the remedy; an empty text if it is.
        trial: what is wrong with its results; an empty text if nothing is wrong, None if the path was not tried.
        details: facts for a reader.
    """

    name: str
    device: str
    why_not: str
    trial: str | None
    details: dict[str, object]

    @property
    def failed(self) -> bool:
        """Whether the path is available but gives wrong results."""
        return bool(self.trial)


def paths() -> list[Path]:
    """The fused paths, each tried on a small batch if it is available."""
    return [_native(), _triton()]


def _native() -> Path:
    why_not = library.why_not()
    details: dict[str, object] = {
        "variant": library.variant(),
        "variants": library.present(),
        "threads": library.threads(),
        "openmp": openmp(),
    }
    return Path("native", "cpu", why_not, None if why_not else problem("cpu"), details)


def _triton() -> Path:
    seen = torch.cuda.is_available()
    why_not = "" if HAS_TRITON else "Triton is not installed: pip install triton"
    why_not = why_not if seen else "torch sees no GPU"
    details: dict[str, object] = {"gpu": torch.cuda.get_device_name() if seen else None}
    return Path("triton", "cuda", why_not, None if why_not else problem("cuda"), details)
