"""Chooses which path computes a call, by the user's choice, the device and the dtype. Only this file decides it."""

import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from .cpu import calls
from .cpu import library as native
from .cpu.calls import DTYPES, MOST_TRIALS, QUANTITIES
from .trial import is_trusted
from .triton import launch_numbers
from .triton.launch import available, interpreted, is_warm
from .triton.launch_columns import ONLY_NATIVE

PATHS = ("auto", "torch", "triton", "native")
TRITON_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

_chosen: ContextVar[str] = ContextVar("torch_boc_path", default="auto")


class _Traced(threading.local):
    """The choice for torch.compile, which compiles again when it changes. Older versions cannot read a ContextVar."""

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
            While a CUDA graph is captured, the kernels take only logits of a dtype and a number of classes that they
            took before; torch's operations take all others. Call once before the capture, as torch requires anyway;
            "torch": torch's own operations, the reference;
            "triton": the Triton kernels, without a trial; tensors on other devices are an error;
            "native": on the CPU, the native library; it is an error if there is none (`torch-boc doctor` says why).
            For more than 1,000 trials this is the same as "torch", and on other devices the same as "auto".

    Inside of torch.compile, each kernel of "triton" and of the native library is one operator of the graph. On a GPU,
    "auto" leaves everything to the compiler. Programs that are exported have torch's own operations only.

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
        _traced.path = _chosen.get()  # not the value from before, which another task of this thread may have set


class Fused(NamedTuple):
    """Which parts of a call the kernels compute.

    Attributes:
        rows: the sums over the classes.
        numbers: what is computed from the sums of each row: the coins and the tails.
        most_trials: tails of more trials than this are computed by torch's operations.
        quantities: the names of the numbers that `columns` and `count_scores` compute.
        direct: the module whose functions are called directly, without operators around them, because an operator costs
            more than a small batch; None if a mode, a tracer or a compiler has to see an operator.
    """

    rows: bool
    numbers: bool
    most_trials: int
    quantities: frozenset[str]
    direct: ModuleType | None


_NATIVE, _TRITON = frozenset(QUANTITIES), frozenset(QUANTITIES) - ONLY_NATIVE
_NOTHING = Fused(rows=False, numbers=False, most_trials=sys.maxsize, quantities=frozenset(), direct=None)


def decide(x: Tensor) -> Fused:
    """Which parts of a call the kernels compute. `x` is the tensor of the call: logits, or numbers of each row."""
    path = _traced.path if torch.compiler.is_compiling() else _chosen.get()
    dtypes = _fused_dtypes(x, path)
    if not dtypes:
        return _NOTHING
    on_cpu = path != "triton" and x.device.type == "cpu"
    most_trials, module = (MOST_TRIALS, calls) if on_cpu else (sys.maxsize, launch_numbers)
    rows = x.dtype in dtypes and (on_cpu or path != "auto" or is_warm(x))
    quantities = _NATIVE if on_cpu else _TRITON
    return Fused(rows, torch.float32 in dtypes, most_trials, quantities, module if _is_unwatched(x) else None)


def _is_unwatched(x: Tensor) -> bool:
    """Whether the memory of `x` can be read as it is, and no mode, tracer or compiler has to see the call."""
    if torch.compiler.is_compiling():  # first, because the compiler cannot follow the questions below
        return False
    if type(x) not in (Tensor, Parameter) or x.layout is not torch.strided or x.is_neg():
        return False
    return not (torch._C._len_torch_dispatch_stack() or torch._C._is_tracing())


def _fused_dtypes(x: Tensor, path: str) -> Collection[torch.dtype]:
    """The dtypes of logits that the kernels take. If they take any, they also take numbers in float32 and float64."""
    device = x.device.type
    if path == "torch":
        return ()
    if path == "triton" and not available(device):
        raise RuntimeError(
            f'expected tensors on a GPU that Triton knows, got tensors on {device}: choose "auto" or "torch"'
        )
    if torch.compiler.is_compiling():
        if device == "cpu" and path != "triton":
            return DTYPES if _compiles_native(x, path) else ()
        return TRITON_DTYPES if path == "triton" else ()  # otherwise the compiler fuses torch's operations
    if _transforms():
        return ()
    if device == "cpu" and path != "triton":
        return DTYPES if _takes_native(x, path) else ()
    return TRITON_DTYPES if available(device) and (path == "triton" or is_trusted(x.device)) else ()


def _transforms() -> bool:
    """Whether transforms are active for which torch's operations have rules, also for nested ones."""
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0


def _compiles_native(x: Tensor, path: str) -> bool:
    """Whether the native library computes a call on the CPU as an operator in a graph of torch.compile.

    A program that is exported consists of torch's standard operations, which any other program can run.
    """
    return type(x) in (Tensor, Parameter) and not torch.compiler.is_exporting() and _native_while_compiling(path)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _native_while_compiling(path: str) -> bool:
    """Whether the native library can take a call: a constant for the compiler, which cannot follow the questions."""
    if path == "native":
        native.library()  # raises if there is none
    return native.available() and not interpreted() and not _transforms()


def _takes_native(x: Tensor, path: str) -> bool:
    """Whether the native library computes a call on the CPU."""
    if path == "native":
        native.library()  # raises if there is none
        return True
    # Tracers, and subclasses such as DTensor, need torch's standard operations.
    plain = type(x) in (Tensor, Parameter) and not torch._C._is_tracing()
    return plain and native.available() and not interpreted()
