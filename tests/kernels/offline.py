"""Compiles the kernels for GPUs that are not here, and reads what became of them from PTX and its assembler."""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from tests.kernels.cases import INTERPRETED
from torch_boc.core.precision import accumulator
from torch_boc.kernels.triton.launch import geometry

NAMES = {torch.float32: "fp32", torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16"}
EXTRAS = ("surprise", "margin", "on_surprise", "on_margin")
SPREAD = ("on_mass", "on_mass_squares")


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
    name: str, classes: int, dtype: torch.dtype, *, extras: bool, target: tuple, spread: bool = False
) -> Compiled:
    """`short_<name>` or `long_<name>` as `launch.py` would start it on contiguous logits."""
    from torch_boc.kernels.triton import rows as rows_triton
    from torch_boc.kernels.triton.launch import load

    options = geometry(classes, accumulator(dtype))
    warps = options.pop("num_warps")
    kernel = getattr(load(name), f"short_{name}" if "height" in options else f"long_{name}")
    constants = {**options, "dtype": rows_triton.DTYPES[accumulator(dtype)]}
    missing = EXTRAS * (not extras) + SPREAD * (not spread)
    constants |= {n: None for n in missing if n in kernel.arg_names}
    types = {n: "constexpr" if n in constants else _type(n, dtype) for n in kernel.arg_names}
    # As Triton finds them at a launch: pointers are aligned, and numbers are where 16 divides them.
    aligned = [n[0] == "*" or (classes % 16 == 0 and a in ("classes", "stride")) for a, n in types.items()]
    asm = _compile(kernel, types, constants, aligned, target, num_warps=warps, enable_fp_fusion=True)
    elements = options.get("height", 1) * options["width"]
    return Compiled(asm, 32 * warps, elements, "height" not in options)


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


def compile_spread(dtype: torch.dtype, *, target: tuple) -> Compiled:
    """The sums of flat rows as `launch.py` would start them."""
    from torch_boc.kernels.triton import rows as rows_triton
    from torch_boc.kernels.triton import spread as spread_triton
    from torch_boc.kernels.triton.launch import SPREAD_WARPS as WARPS
    from torch_boc.kernels.triton.launch import SPREAD_WIDTH as WIDTH

    kernel = spread_triton.spread
    constants = {"width": WIDTH, "dtype": rows_triton.DTYPES[accumulator(dtype)]}
    types = {n: "constexpr" if n in constants else _type(n, dtype) for n in kernel.arg_names}
    aligned = [n[0] == "*" for n in types.values()]
    asm = _compile(kernel, types, constants, aligned, target, num_warps=WARPS, enable_fp_fusion=True)
    return Compiled(asm, 32 * WARPS, WIDTH, long=True)


def _compile(kernel, types: dict, constants: dict, aligned: list[bool], target: tuple, **flags: int) -> dict:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    attributes = {(i,): [["tt.divisibility", 16]] for i, yes in enumerate(aligned) if yes}
    source = ASTSource(kernel, types, constants, attributes)
    return triton.compile(source, target=GPUTarget(*target), options=flags).asm


def _type(argument: str, dtype: torch.dtype) -> str:
    if argument in ("rows", "classes", "stride"):
        return "i32"
    if argument in ("logits", "gradient"):
        return f"*{NAMES[dtype]}"
    special = {"prediction": "*i64"} | dict.fromkeys(
        ("squares", "mass", "mass_squares", "on_squares", *SPREAD), "*fp64"
    )
    return special.get(argument, f"*{NAMES[accumulator(dtype)]}")


def moved_bytes(ptx: str, operation: str) -> int:
    """Bytes that one thread moves by all instructions `ld.global` or `st.global` that stand in the code."""
    found = re.findall(rf"\b{operation}\.global[\w:.]*?(?:\.v(\d))?\.b(\d+)\b", ptx)
    return sum(int(count or 1) * int(bits) // 8 for count, bits in found)


def wide_instructions(ptx: str) -> tuple[int, int]:
    """Instructions of the float64 pipe inside the loop of a kernel that has one, and outside; a division is ten."""
    counts = [0, 0]
    start, end = (ptx.index(label) for label in _loop(ptx))
    for found in re.finditer(r"\b(add|sub|mul|fma|setp|div)[\w.]*\.f64\b", ptx):
        counts[not start < found.start() < end] += 10 if found.group(1) == "div" else 1
    return counts[0], counts[1]


def _loop(ptx: str) -> tuple[str, str]:
    """Where the one loop begins, at a label, and the branch back to it."""
    labels = re.findall(r"^(\$L__BB\w+):", ptx, re.MULTILINE)
    back = [(f"{x}:", f"bra \t{x};") for x in labels if 0 < ptx.find(f"{x}:") < ptx.find(f"bra \t{x};")]
    assert len(back) == 1, back
    return back[0]


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
