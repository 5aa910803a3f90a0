"""Launches of the Triton kernels: which kernel, how many rows per program, how many threads.

Every kernel is started by `launch`, on the device of its tensors, which need not be the current one. The first launch
of a kernel loads its code, for which the host must wait: while a CUDA graph is captured, this is an error that says so.
"""

import importlib.util
import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ...core.precision import accumulator
from .cards import processors
from .geometry import VECTOR_BYTES, Stage, geometry, parts_of, spread_geometry
from .views import Layout, layout_of, readable

HAS_TRITON = importlib.util.find_spec("triton") is not None

# The launches over long rows that are split, and the most numbers of a part in their table.
_STAGES = {
    "rows": (Stage.TOPS, Stage.SUMS, Stage.JOIN),
    "spread": (Stage.SUMS, Stage.JOIN),
    "gradients": (Stage.SUMS, Stage.JOIN),
}
TABLE_COLUMNS = 6
# Logits whose kernels were launched before: see `_kind`.
_launched: set[tuple[Any, ...]] = set()


def load(name: str) -> Any:
    """The module of kernels called `name`. It is imported at the first launch, because it needs Triton."""
    return import_module(f"{__package__}.{name}")


def available(device: str) -> bool:
    """Whether Triton kernels can run on this type of device: a GPU, or any device with Triton's interpreter."""
    return HAS_TRITON and (device == "cuda" or interpreted())


def on_triton(x: Tensor) -> bool:
    """Whether an operator launches a Triton kernel for this tensor: not on the CPU, except in tests."""
    return x.device.type != "cpu" or interpreted()


def interpreted() -> bool:
    """Whether Triton interprets its kernels."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def launch(kernel: Any, grid: tuple[int, ...], like: Tensor, *arguments: Any, **options: Any) -> None:
    """Start `kernel` on the device of `like`; this is the one place where kernels are started."""
    with torch.cuda.device_of(like):
        if like.is_cuda and torch.cuda.is_current_stream_capturing():
            _check_loaded(kernel, grid, arguments, options)
        kernel[grid](*arguments, **options)


def is_capturing(device: torch.device) -> bool:
    """Whether a CUDA graph is captured on the current stream of this device; this opens no context."""
    if device.type != "cuda" or not torch.cuda.is_initialized():
        return False
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


def is_warm(logits: Tensor) -> bool:
    """Whether kernels can take these logits now. While a graph is captured, they must be of a kind that came before."""
    return not is_capturing(logits.device) or _kind(logits) in _launched


def _kind(logits: Tensor) -> tuple[Any, ...]:
    """What kernels are compiled for: device, dtype, classes, and how the rows lie in memory, but not how many."""
    layout = layout_of(logits)
    how = [number is None for number in layout.numbers]
    return logits.device, logits.dtype, layout.classes, *how, layout.bits, logits.data_ptr() % VECTOR_BYTES


def _check_loaded(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Raise if this kernel was never launched before with arguments of these types."""
    compiled = kernel.warmup(*arguments, grid=grid, **options)  # from Triton's memory, or compiled without a launch
    if getattr(compiled, "module", compiled) is None:
        raise RuntimeError(
            "expected kernels that ran before, got a new one while a CUDA graph is captured, when it cannot be loaded: "
            "call the same function once on such a batch before the capture, or capture within "
            'torch_boc.kernels.use("torch")'
        )


def check_pair(first: Tensor, odds: Tensor) -> None:
    """Raise unless both have one shape and one device. Kernels get pointers, and cannot check this."""
    if first.shape != odds.shape or first.device != odds.device:
        got = [f"{tuple(x.shape)} on {x.device}" for x in (first, odds)]
        raise ValueError(f"expected two tensors of one shape on one device, got {got[0]} and {got[1]}")


def empty_rows(logits: Tensor, extras: bool) -> list[Tensor]:
    """Empty tensors for the results: prediction, top, odds and squares; with `extras` also surprise and margin."""
    shape, dtype = logits.shape[:-1], accumulator(logits.dtype)
    dtypes = [torch.int64, dtype, dtype, torch.float64] + [dtype, dtype] * extras
    return [logits.new_empty(shape, dtype=kind) for kind in dtypes]


def empty_sums(logits: Tensor, extras: bool) -> list[Tensor]:
    """Empty tensors for all sums, in the order of `kernels.rows.SUMS`: mass and mass_squares after the first four."""
    first, wide = empty_rows(logits, extras), torch.float64
    return [*first[:4], *(logits.new_empty(logits.shape[:-1], dtype=wide) for _ in range(2)), *first[4:]]


def empty_gradient(logits: Tensor) -> Tensor:
    """An empty tensor for the gradient; it is contiguous, also if the logits are not."""
    return logits.new_empty(logits.shape)


def launch_rows(logits: Tensor, extras: bool) -> list[Tensor]:
    """The sums of each row in one launch, or three if rows are split."""
    out = empty_rows(logits, extras)
    _launch("rows", logits, [*out, None, None][:6])
    return out


def launch_spread(
    logits: Tensor, top: Tensor, odds: Tensor, squares: Tensor, log_rest: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The sums for the concentration in one launch, two if rows are split; it reads only flat and sharp rows.

    The log of the odds of each row is written to `log_rest`, in float64, if that is given.
    """
    out = squares.new_empty(squares.shape), squares.new_empty(squares.shape)
    if logits.numel():
        logits = readable(logits)
        layout = layout_of(logits)
        options = {**spread_geometry(layout), **constants(logits, layout)}
        arguments = [logits, *(x.contiguous() for x in (top, odds, squares)), *out, log_rest]
        _launch_parts(load("spread").spread, arguments, layout, options, _STAGES["spread"])
    return out


def launch_sums(logits: Tensor, extras: bool) -> list[Tensor]:
    """All sums of each row in the order of `kernels.rows.SUMS`, in two launches, or five if rows are split."""
    first = launch_rows(logits, extras)
    return [*first[:4], *launch_spread(logits, *first[1:4]), *first[4:]]


def launch_gradient(logits: Tensor, sums: Sequence[Tensor], grads: Sequence[Tensor | None]) -> Tensor:
    """`kernels.rows.row_sums_backward` on a GPU in one launch, or two if rows are split."""
    out, (_, top, _, mass) = empty_gradient(logits), sums
    like = [top, top, mass, mass, mass, top, top]
    # The two sums for the concentration either both have a gradient or none; the same is true of the two extras.
    needed = [True, True, True] + [any(x is not None for x in grads[i : i + 2]) for i in (3, 3, 5, 5)]
    filled = [
        x if x is not None else torch.zeros_like(kind) if need else None
        for x, kind, need in zip(grads, like, needed, strict=True)
    ]
    arguments = [x if x is None else x.contiguous() for x in (*sums, *filled, out)]
    _launch("gradients", logits, arguments, heavy=needed[3])
    return out


def _launch(name: str, logits: Tensor, arguments: list[Tensor | None], *, heavy: bool = False) -> None:
    """Start `short_<name>` or `long_<name>` on the rows of `logits`, if there are any."""
    if logits.numel() == 0:
        return
    logits = readable(logits)
    layout = layout_of(logits)
    options = {
        **geometry(layout.classes, logits.dtype, across=layout.across, heavy=heavy),
        **constants(logits, layout),
    }
    if "height" in options:
        kernel, grid = getattr(load(name), f"short_{name}"), (-(-layout.rows // options["height"]),)
        launch(kernel, grid, logits, logits, *arguments, *layout.numbers, **options)
    else:
        kernel = getattr(load(name), f"long_{name}")
        _launch_parts(kernel, [logits, *arguments], layout, options, _STAGES[name])
    _launched.add(_kind(logits))


def _launch_parts(
    kernel: Any, arguments: list[Any], layout: Layout, options: dict[str, Any], stages: tuple[Stage, ...]
) -> None:
    """Start a kernel once or, if there are few long rows, once for each stage, with several programs for a row."""
    logits, programs = arguments[0], -(-layout.rows // options.get("height", 1))
    parts = parts_of(programs, layout.classes, processors(logits.device))
    # A table that is not used must be of the same type, so that both ways have one code.
    table = next(x for x in arguments[1:] if x is not None and x.dtype == torch.float64)
    if parts > 1:
        table = logits.new_empty((TABLE_COLUMNS, layout.rows, parts), dtype=torch.float64)
    for stage in stages if parts > 1 else (Stage.WHOLE,):
        grid = (programs * (1 if stage == Stage.JOIN else parts),)
        launch(kernel, grid, logits, *arguments, table, *layout.numbers, parts, int(stage), **options)


def constants(logits: Tensor, layout: Layout) -> dict[str, Any]:
    """What all kernels that read logits are compiled for; a product and a sum may become one operation."""
    dtype = accumulator(logits.dtype)
    fast = dtype == torch.float32 and has_ptx()
    return {"bits": layout.bits, "dtype": load("rows").DTYPES[dtype], "fast": fast, "enable_fp_fusion": True}


def has_ptx() -> bool:
    """Whether kernels may have instructions of NVIDIA's GPUs in them."""
    return torch.version.hip is None and not interpreted()
