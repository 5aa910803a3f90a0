"""From tensors to launches: which kernel, how many rows per program, how many threads."""

import importlib.util
import os
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ...core.precision import accumulator

HAS_TRITON = importlib.util.find_spec("triton") is not None
# The longest row that stays in registers, by the accumulator: 32 float32 or 8 float64 for each of 512 threads. Twice
# as many float64 no longer fit, for all that exp needs beside them.
ON_CHIP_CLASSES = {torch.float32: 16384, torch.float64: 4096}
# One thread's part of a row that fits easily.
THREAD_BYTES = {torch.float32: 64, torch.float64: 32}
# A block of a longer row, for as many threads as a program has at most: 32 bytes each, with sums beside them.
BLOCK_BYTES = 2**14
MOST_WARPS = 16
# One program's part where rows are short: two warps, so that few sums need an exchange between warps.
PROGRAM_BYTES = 2**12


def load(name: str) -> Any:
    """The module of kernels called `name`. It is imported with the first launch, for it needs Triton."""
    return import_module(f"{__package__}.{name}")


def available(device: str) -> bool:
    """Whether there are Triton kernels for tensors of this type of device: a GPU, or any in Triton's interpreter."""
    return HAS_TRITON and (device == "cuda" or interpreted())


def on_triton(x: Tensor) -> bool:
    """Whether an operator is to launch a Triton kernel on this tensor: anywhere but on the CPU, there for tests."""
    return x.device.type != "cpu" or interpreted()


def interpreted() -> bool:
    """Whether Triton interprets its kernels."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def check_pair(first: Tensor, odds: Tensor) -> None:
    """One shape and one device: kernels get pointers, and do not ask."""
    if first.shape != odds.shape or first.device != odds.device:
        got = [f"{tuple(x.shape)} on {x.device}" for x in (first, odds)]
        raise ValueError(f"expected two tensors of one shape on one device, got {got[0]} and {got[1]}")


def empty_rows(logits: Tensor, extras: bool) -> list[Tensor]:
    """Room for the results: prediction, top, odds and squares, and surprise and margin with `extras`."""
    shape, dtype = logits.shape[:-1], accumulator(logits.dtype)
    dtypes = [torch.int64, dtype, dtype, torch.float64] + [dtype, dtype] * extras
    return [logits.new_empty(shape, dtype=kind) for kind in dtypes]


def empty_gradient(logits: Tensor) -> Tensor:
    """Room for the gradient, contiguous whatever the strides of the logits are."""
    return logits.new_empty(logits.shape)


def launch_rows(logits: Tensor, extras: bool) -> list[Tensor]:
    """The sums of each row, in one launch."""
    out = empty_rows(logits, extras)
    _launch("rows", logits, [*out, None, None][:6])
    return out


def launch_gradient(logits: Tensor, prediction: Tensor, top: Tensor, grads: list[Tensor | None]) -> Tensor:
    """The gradient of the logits, in one launch; `grads` are those of top, odds, squares, surprise and margin."""
    out = empty_gradient(logits)
    vectors = [x if x is None else x.contiguous() for x in (prediction, top, *grads)]
    _launch("gradients", logits, [*vectors, out])
    return out


def _launch(name: str, logits: Tensor, arguments: list[Tensor | None]) -> None:
    """Start `short_<name>` or `long_<name>` on the rows of `logits`; nothing to start for none."""
    if logits.numel() == 0:
        return
    kernels = load("rows")
    matrix = as_matrix(logits)
    (rows, classes), stride = matrix.shape, matrix.stride(0)
    dtype = accumulator(logits.dtype)
    options = {**geometry(classes, dtype), "dtype": kernels.DTYPES[dtype]}
    options["enable_fp_fusion"] = True  # faster; the sums are as exact without
    with torch.cuda.device_of(logits):
        if "height" in options:
            grid = (-(-rows // options["height"]),)
            getattr(kernels, f"short_{name}")[grid](matrix, *arguments, rows, classes, stride, **options)
        else:
            getattr(kernels, f"long_{name}")[(rows,)](matrix, *arguments, classes, stride, **options)


def geometry(classes: int, dtype: torch.dtype) -> dict[str, Any]:
    """Rows per program (`height`, only where they fit on chip), classes per block (`width`), and warps."""
    width = 1 << (classes - 1).bit_length()
    if width > ON_CHIP_CLASSES[dtype]:
        return {"width": BLOCK_BYTES // dtype.itemsize, "num_warps": MOST_WARPS}
    height = max(1, PROGRAM_BYTES // (width * dtype.itemsize))
    warps = height * width * dtype.itemsize // (32 * THREAD_BYTES[dtype])
    return {"height": height, "width": width, "num_warps": min(MOST_WARPS, warps)}


def as_matrix(logits: Tensor) -> Tensor:
    """The rows as a matrix of unit stride along the classes; a view, unless the strides forbid it."""
    matrix = logits.reshape(-1, logits.shape[-1])
    return matrix if matrix.stride(1) == 1 else matrix.contiguous()
