"""Which path computes a call: by the user's choice, the device and the dtype. Each call asks once.

The functions here are the operators of the probe on any path: by torch's operations of `core`, by the native library,
or by Triton.
"""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from ..core import tails
from ..core.coins import Coins
from ..core.dtypes import to_wide, wide_dtype
from ..core.martingale import StreamState, place_bets
from ..core.row_numbers import columns as columns_by_torch
from ..core.row_sums import RowSums
from ..core.schema import NOT_BY_TRITON, QUANTITIES, Labels, Tally
from ..core.tally import add_samples
from . import operators
from .cpu import bindings
from .cpu import loader as native
from .cpu.bindings import DTYPES, MOST_TRIALS
from .selftest import is_trusted
from .triton import launch
from .triton.launch import available, interpreted

PATHS = ("auto", "torch", "triton", "native")
# Up to this many trials, torch.compile gets each step of the continued fraction: 1,000 trials take 74 steps.
MOST_TRIALS_UNROLLED = 1000

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
            "auto": Triton kernels on a GPU that Triton supports, after a short self-test on that GPU; the native
            library on a CPU, if it came with the package; torch's own operations elsewhere. This is the default.
            While a CUDA graph is captured, no kernel can be loaded: torch's operations compute what has not run before.
            Call once before the capture, as torch requires anyway;
            "torch": torch's own operations, the reference;
            "triton": the Triton kernels, without the self-test; tensors on other devices are an error;
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


class KernelSet(NamedTuple):
    """Kernels that compute a call.

    Attributes:
        kernels: the module whose functions are called: the operators or, if no mode, tracer or compiler has to see an
            operator, the functions behind them, because an operator costs more than a small batch.
        names: the numbers that the kernels compute.
        most_trials: tails of more trials than this are computed by torch's operations.
        native: whether they are the library's: a tally is made of the logits themselves, and bets are left to torch.
    """

    kernels: ModuleType
    names: frozenset[str]
    most_trials: int
    native: bool


_NATIVE = {
    watched: KernelSet(x, frozenset(QUANTITIES), MOST_TRIALS, True)
    for watched, x in ((True, operators), (False, bindings))
}
_TRITON = {
    watched: KernelSet(x, frozenset(QUANTITIES) - NOT_BY_TRITON, sys.maxsize, False)
    for watched, x in ((True, operators), (False, launch))
}


def choose_kernels(x: Tensor) -> KernelSet | None:
    """The kernels for a tensor, or None for torch's operations; `x` are logits, or else numbers of each row."""
    compiling = torch.compiler.is_compiling()
    path, device = _traced.path if compiling else _chosen.get(), x.device.type
    if path == "triton" and not (available(device) and wide_dtype(x.device) == torch.float64):
        raise RuntimeError(
            f"expected tensors on a GPU that Triton knows and that has float64, got tensors on {device}: "
            'choose "auto" or "torch"'
        )
    if path == "torch" or x.dtype not in DTYPES:
        return None
    plain, on_cpu = type(x) in (Tensor, Parameter), device == "cpu" and path != "triton"
    if compiling:  # on a GPU, the compiler fuses torch's operations itself
        # A program that is exported consists of torch's operations, which any other program can run.
        taken = path == "triton" or (on_cpu and plain and not torch.compiler.is_exporting())
        return (_TRITON if path == "triton" else _NATIVE)[True] if taken and _takes_operators(path) else None
    # Transforms have rules for torch's operations; tracers and subclasses need them as well.
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        return None
    tracing = torch._C._is_tracing()
    watched = not plain or tracing or x.is_neg() or torch._C._len_torch_dispatch_stack() > 0
    watched = watched or (x.requires_grad and torch.is_grad_enabled())
    if on_cpu:
        if path == "native":
            native.library()  # raises if there is none
        elif not plain or tracing or native.chosen()[0] is None or os.environ.get("TRITON_INTERPRET") == "1":
            return None
        return _NATIVE[watched]
    if not available(device) or wide_dtype(x.device) != torch.float64:
        return None
    if path == "auto" and not is_trusted(x.device):
        return None
    return _TRITON[watched]


def _takes_operators(path: str) -> bool:
    """Whether a graph can have operators of this path: a constant for the compiler, which cannot follow the questions.

    Transforms in the graph have rules for torch's operations only.
    """
    if path == "native":
        native.library()
    taken = path == "triton" or (native.variant() is not None and not interpreted())
    return taken and not torch._C._are_functorch_transforms_active()


# What torch.compiler.assume_constant_result does, without the import of the compiler, which takes as long as torch's.
_takes_operators._dynamo_marked_constant = True  # type: ignore[attr-defined]


def columns(
    logits: Tensor, names: Sequence[str], index: Tensor | None = None, *, keep_dtype: bool = False
) -> dict[str, Tensor]:
    """Numbers of each row by name: `core.row_numbers.columns` on the path of the logits.

    The kernels compute what `core.schema` knows, and the sums if a gradient is needed; torch computes the rest.
    """
    path = choose_kernels(logits)
    if path is not None and (index is None or index.device == logits.device):
        with _unless_captured():
            return _columns(path, logits, names, index, keep_dtype)
    return columns_by_torch(logits, names, index, keep_dtype=keep_dtype)


@contextmanager
def _unless_captured() -> Iterator[None]:
    """Leave the block if a kernel cannot be loaded now, unless the user insists on Triton."""
    try:
        yield
    except launch.NotLoadedError:
        if _chosen.get() == "triton":
            raise


def _columns(
    path: KernelSet, logits: Tensor, names: Sequence[str], index: Tensor | None, keep_dtype: bool
) -> dict[str, Tensor]:
    if logits.requires_grad and torch.is_grad_enabled():
        return columns_by_torch(logits, names, index, keep_dtype=keep_dtype, sums=_differentiable_sums)
    if path.names.issuperset(names):
        return dict(zip(names, path.kernels.columns(logits, names, index, keep_dtype), strict=True))
    fused, rest = ([name for name in names if (name in path.names) == here] for here in (True, False))
    others = columns_by_torch(logits, rest, index, keep_dtype=keep_dtype, sums=_differentiable_sums)
    return others | _columns(path, logits, fused, index, keep_dtype) if fused else others


def _differentiable_sums(logits: Tensor, extras: bool) -> RowSums:
    return RowSums(*operators.row_sums(logits, extras))


def log_tail(wins: Tensor, trials: int, odds: Tensor) -> Tensor:
    """The log of Pr{Binomial(trials, 1 / (1 + odds)) >= wins}; both tensors come from `to_wide` and have one shape.

    It can be differentiated once, in the odds.
    """
    path = choose_kernels(odds)
    if path is not None and trials <= path.most_trials:
        with _unless_captured():
            return path.kernels.log_tails(wins, trials, odds)[0]  # type: ignore[no-any-return]
    if torch.compiler.is_compiling() and trials > MOST_TRIALS_UNROLLED:  # one operator, whose steps are not compiled
        return operators.log_tails(wins, trials, odds)[0]  # type: ignore[no-any-return]
    if odds.requires_grad and torch.is_grad_enabled():
        return operators.LogTail.apply(wins, trials, odds)[0]  # type: ignore[no-any-return]
    return tails.log_tails(wins, trials, odds, slope=False)[0]


def log_p_value(coins: Coins, trials: int) -> Tensor:
    """`log_tail` at the expected number of wins. No gradient goes through the wins."""
    return log_tail(tails.expected_wins(coins.loss.detach(), trials), trials, to_wide(coins.odds))


def tally(total: Tally, coins: Coins, labels: Labels, num_classes: int, trials: int, alpha: float) -> None:
    """Add samples to a tally, in place: `core.tally.add_samples` on the path of the odds; 0 trials: no p-values."""
    numbers, path, device = coins[:5], choose_kernels(coins.odds), coins.odds.device
    alike = {x.device for x in (*numbers, *labels, *total) if x is not None} == {device}
    if path is not None and alike and coins.odds.dtype == torch.float64 and trials <= path.most_trials:
        with _unless_captured():
            path.kernels.tally(numbers, labels, num_classes, trials, alpha, *total)
            return
    log_p = log_p_value(coins, trials) if trials else None
    add_samples(total, coins, log_p, labels, num_classes, alpha)


def tally_logits(
    total: Tally, logits: Tensor, target: Tensor | None, ignore_index: int | None, trials: int, alpha: float
) -> bool:
    """Add the rows of logits to a tally, in place, in one pass, if a kernel does that; return whether one did."""
    path, labels = choose_kernels(logits), logits if target is None else target
    if path is None or not path.native or trials > path.most_trials:
        return False
    if not logits.device == labels.device == total.counts.device:
        return False
    counted = None if target is None or ignore_index is None else target != ignore_index
    path.kernels.tally([logits], (target, None, counted), logits.shape[-1], trials, alpha, *total)
    return True


def martingale(
    p: Tensor, number: Tensor, mixed: Sequence[Tensor], bound: float, endless: bool, state: StreamState
) -> Tensor:
    """Bet on the next p-values of a stream, in place: `core.martingale.place_bets` on the path of the p-values."""
    path, given = choose_kernels(p), (p, number, mixed, bound, endless, *state)
    if path is not None and not path.native and {x.device for x in (number, *mixed, *state)} == {p.device}:
        with _unless_captured():
            return path.kernels.martingale(*given)  # type: ignore[no-any-return]
    return place_bets(*given)
