"""The ways in which a call of the library is timed, besides the one that it takes by itself."""

from collections.abc import Callable

import torch

from torch_boc.kernels import use


def compiled(function: Callable[..., object]) -> Callable[..., object]:
    """`function` compiled anew for one shape."""
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, dynamic=False)


def in_torch(function: Callable[..., object]) -> Callable[..., object]:
    """`function` by torch's operations."""

    def run(*args: object) -> object:
        with use("torch"):
            return function(*args)

    return run
