"""Compiles the kernels for GPUs that are not here, and reads what became of them from PTX and its assembler."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from tests.kernels.cases import INTERPRETED
from tests.kernels.recorded import compile_launch, record
from torch_boc.core.precision import accumulator
from torch_boc.kernels.triton import launch

NAMES = {torch.float32: "fp32", torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16"}

OFFLINE = [
    pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux"),
    pytest.mark.skipif(INTERPRETED, reason="what is interpreted is not compiled"),
    pytest.mark.usefixtures("offline_compiler"),
]


class Compiled(NamedTuple):
    """One kernel for one GPU: its code and the launch that it is for."""

    asm: dict
    threads: int
    elements: int
    long: bool


def compile_kernel(
    name: str, classes: int, dtype: torch.dtype, *, extras: bool, target: tuple, spread: bool = False, cut=None
) -> Compiled:
    """`short_<name>` or `long_<name>` as `launch.py` starts it on contiguous logits, or on those that `cut` returns."""
    logits = torch.empty(3, classes, dtype=dtype) if cut is None else cut(classes, dtype)
    return _compile_launch(lambda: _start(name, logits, extras, spread), target)


def compile_spread(
    dtype: torch.dtype, *, target: tuple, classes: int = 1000, log_rest: bool = False, across: bool = False
) -> Compiled:
    """The sums of flat and sharp rows, alone or with the log of the odds; the rows lie one after another, or across."""
    logits = torch.empty(classes, 3, dtype=dtype).T if across else torch.empty(3, classes, dtype=dtype)
    odds, squares = torch.empty(3, dtype=accumulator(dtype)), torch.empty(3, dtype=torch.float64)
    rest = torch.empty_like(squares) if log_rest else None
    return _compile_launch(lambda: launch.launch_spread(logits, odds, odds, squares, rest), target)


def _start(name: str, logits: Tensor, extras: bool, spread: bool) -> None:
    if name == "rows":
        launch.launch_rows(logits, extras)
        return
    prediction, top, odds, squares, mass, *_ = launch.empty_sums(logits, extras)
    masses, others = [mass if spread else None] * 2, [top if extras else None] * 2
    launch.launch_gradient(logits, [prediction, top, odds, mass], [top, odds, squares, *masses, *others])


def _compile_launch(start: Callable[[], None], target: tuple) -> Compiled:
    with pytest.MonkeyPatch.context() as patch:
        launches = record(patch)
        patch.setattr(launch, "has_ptx", lambda: target[0] == "cuda")
        start()
    (found,) = launches
    options = found.options
    elements = options.get("height", 1) * options["width"]
    return Compiled(compile_launch(found, target), 32 * options["num_warps"], elements, "height" not in options)


def compile_tails(name: str, dtype: torch.dtype, *, target: tuple) -> Compiled:
    """The kernel `name` as `tail_ops.py` would start it."""
    from torch_boc.kernels.tails import BLOCK, WARPS
    from torch_boc.kernels.triton import tails as tails_triton

    kernel = getattr(tails_triton, name)
    first, odds, *rest = kernel.arg_names
    types = {first: f"*{NAMES[dtype]}", odds: f"*{NAMES[dtype]}"}
    types |= {n: "i32" if n in ("size", "trials", "steps") else "*fp64" for n in rest} | {"block": "constexpr"}
    aligned = [n[0] == "*" for n in types.values()]
    asm = _compile(kernel, types, {"block": BLOCK}, aligned, target, num_warps=WARPS, enable_fp_fusion=False)
    return Compiled(asm, 32 * WARPS, BLOCK, long=False)


def compile_coins(dtype: torch.dtype, *, target: tuple) -> Compiled:
    """Loss, concentration and free gap as `coin_ops.py` would start them."""
    from torch_boc.kernels.coins import BLOCK, WARPS
    from torch_boc.kernels.triton import coins as coins_triton

    narrow = f"*{NAMES[dtype]}"
    types = {
        "odds": narrow,
        **dict.fromkeys(("squares", "mass", "mass_squares"), "*fp64"),
        **dict.fromkeys(("loss", "concentration", "free_gap"), narrow),
        "size": "i32",
        "rivals": "i32",
    }
    types["block"] = "constexpr"
    aligned = [n[0] == "*" for n in types.values()]
    flags = {"num_warps": WARPS, "enable_fp_fusion": False}
    asm = _compile(coins_triton.coins, types, {"block": BLOCK}, aligned, target, **flags)
    return Compiled(asm, 32 * WARPS, BLOCK, long=False)


def _compile(kernel, types: dict, constants: dict, aligned: list[bool], target: tuple, **flags: int) -> dict:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    attributes = {(i,): [["tt.divisibility", 16]] for i, yes in enumerate(aligned) if yes}
    source = ASTSource(kernel, types, constants, attributes)
    return triton.compile(source, target=GPUTarget(*target), options=flags).asm


def moved_bytes(ptx: str, operation: str) -> int:
    """Bytes that one thread moves by all instructions `ld.global` or `st.global` that stand in the code."""
    found = re.findall(rf"\b{operation}\.global[\w:.]*?(?:\.v(\d))?\.b(\d+)\b", ptx)
    return sum(int(count or 1) * int(bits) // 8 for count, bits in found)


def longest_load(ptx: str) -> int:
    """Bytes of the longest load from global memory."""
    found = re.findall(r"\bld\.global[\w:.]*?(?:\.v(\d))?\.b(\d+)\b", ptx)
    return max(int(count or 1) * int(bits) // 8 for count, bits in found)


def wide_instructions(ptx: str) -> tuple[int, int]:
    """Instructions of the float64 pipe inside the loops of a kernel, and outside; a division is ten."""
    inside, outside = 0, 0
    for found in re.finditer(r"\b(add|sub|mul|fma|setp|div)[\w.]*\.f64\b", ptx):
        cost = 10 if found.group(1) == "div" else 1
        if any(start < found.start() < end for start, end in loops(ptx)):
            inside += cost
        else:
            outside += cost
    return inside, outside


def loops(ptx: str) -> list[tuple[int, int]]:
    """Where each loop begins, at a label, and where the branch back to it is."""
    labels = re.findall(r"^(\$L__BB\w+):", ptx, re.MULTILINE)
    found = [(ptx.find(f"{x}:"), ptx.find(f"bra \t{x};")) for x in labels]
    return [(start, end) for start, end in found if 0 < start < end]


def assemble(ptx: str, path: Path) -> tuple[int, int]:
    """Registers per thread, and bytes of local memory: the stack, spilled stores and spilled loads together."""
    from triton.backends import nvidia

    path.write_text(ptx)
    gpu = re.search(r"\.target (sm_\w+)", ptx).group(1)
    # Triton ships one or two assemblers, each for some GPUs; the wrong one refuses the version of the code.
    for tool in sorted((Path(nvidia.__file__).parent / "bin").glob("ptxas*")):
        command = [str(tool), "-v", "--regAllocOptLevel=2", f"--gpu-name={gpu}", str(path), "-o", str(path) + ".o"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode == 0:
            local = re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", run.stderr)
            assert len(local) == 3, run.stderr
            return int(re.search(r"Used (\d+) registers", run.stderr).group(1)), sum(map(int, local))
    raise AssertionError(run.stderr)
