"""Which path computes what: decided here alone, by the user's word, the device, the dtype and the size."""

import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from .cpu import library as native
from .cpu.calls import DTYPES, MOST_TRIALS
from .dtensors import is_distributed
from .trial import is_trusted
from .triton.launch import available, interpreted, is_warm

PATHS = ("auto", "torch", "triton", "native")
TRITON_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

_chosen: ContextVar[str] = ContextVar("torch_boc_path", default="auto")


class _Traced(threading.local):
    """The choice as torch.compile reads it, and compiles again when it changes: older versions know no ContextVar."""

    def __init__(self) -> None:
        self.path = "auto"


_traced = _Traced()


@contextmanager
def use(path: str) -> Iterator[None]:
    """Choose how the probe is computed within a `with` block; results agree up to rounding.

    The choice is a context variable: threads and asynchronous tasks may choose differently at the same time.

    Args:
        path: one of
            "auto": Triton kernels on a GPU that Triton knows, once a short trial has found them to work there; the
            native library on a CPU, if it came with the package; torch's own operations elsewhere. This is the default.
            While a CUDA graph is captured, logits of a dtype and a number of classes that came before go to the
            kernels, others to torch's operations: call once before the capture, as torch asks anyway;
            "torch": torch's own operations, the reference;
            "triton": the Triton kernels, untried; tensors of other devices are an error. Inside of torch.compile they
            stay one operator each, where "auto" leaves everything to the compiler;
            "native": on the CPU, the native library; it is an error if there is none (`torch-boc doctor` says why).
            More than 1,000 trials go by "torch", and other devices by "auto".

    >>> with use("torch"):
    ...     coins = bag_of_coins(torch.tensor([[2.0, 1.0, 0.0, -1.0]]))
    """
    if path not in PATHS:
        raise ValueError(f"expected a path among {', '.join(PATHS)}, got {path!r}")
    token = _chosen.set(path)
    _traced.path = path
    try:
        yield
    finally:
        _chosen.reset(token)
        _traced.path = _chosen.get()  # not what it was before: another task of this thread may have set that


class Fused(NamedTuple):
    """Which parts of a call the kernels compute.

    Attributes:
        rows: the sums over the classes.
        numbers: what is made of the sums of each row, the coins and the tails.
        most_trials: the tails of more trials are left to torch's operations.
    """

    rows: bool
    numbers: bool
    most_trials: int


def decide(x: Tensor) -> Fused:
    """Who computes a call whose tensor is `x`: logits, or numbers of each row."""
    device, path = x.device.type, _traced.path if torch.compiler.is_compiling() else _chosen.get()
    dtypes = _fused_dtypes(x, path)
    limited = device == "cpu" and path != "triton"
    rows = x.dtype in dtypes and (path != "auto" or is_warm(x))
    return Fused(rows, torch.float32 in dtypes, MOST_TRIALS if limited else sys.maxsize)


def _fused_dtypes(x: Tensor, path: str) -> Collection[torch.dtype]:
    """The dtypes of logits that the kernels take; they make numbers of float32 and float64 wherever they take any."""
    device = x.device.type
    if path == "torch" or is_distributed(x):
        return ()
    if path == "triton" and not available(device):
        raise RuntimeError(
            f'expected tensors on a GPU that Triton knows, got tensors on {device}: choose "auto" or "torch"'
        )
    if torch.compiler.is_compiling():
        return TRITON_DTYPES if path == "triton" else ()  # else the compiler fuses torch's operations as it likes
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        return ()  # for which torch's operations have rules, nested ones too
    if device == "cpu" and path != "triton":
        return DTYPES if _takes_native(x, path) else ()
    return TRITON_DTYPES if available(device) and (path == "triton" or is_trusted(x.device)) else ()


def _takes_native(x: Tensor, path: str) -> bool:
    """Whether the native library computes a call on the CPU."""
    if path == "native":
        native.library()  # raises if there is none
        return True
    # What is traced, and subclasses such as DTensor, need operations that everybody knows.
    plain = type(x) in (Tensor, Parameter) and not torch._C._is_tracing()
    return plain and native.available() and not interpreted()
