"""Compiles the kernels for GPUs that are not here, and reads what became of them from PTX and its assembler."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import torch

from torch_boc.functional.precision import accumulator
from torch_boc.kernels.launch import geometry

NAMES = {torch.float32: "fp32", torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16"}
EXTRAS = ("surprise", "margin", "on_surprise", "on_margin")


class Compiled(NamedTuple):
    """One kernel for one GPU: its code and the launch that it is for."""

    asm: dict
    threads: int
    elements: int
    long: bool


def compile_kernel(name: str, classes: int, dtype: torch.dtype, *, extras: bool, target: tuple) -> Compiled:
    """`short_<name>` or `long_<name>` as `launch.py` would start it on contiguous logits."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from torch_boc.kernels import rows_triton

    options = geometry(classes, accumulator(dtype))
    warps = options.pop("num_warps")
    kernel = getattr(rows_triton, f"short_{name}" if "height" in options else f"long_{name}")
    constants = {**options, "dtype": rows_triton.DTYPES[accumulator(dtype)]}
    constants |= {} if extras else {n: None for n in EXTRAS if n in kernel.arg_names}
    types = {n: "constexpr" if n in constants else _type(n, dtype) for n in kernel.arg_names}
    # As Triton finds them at a launch: pointers are aligned, and numbers are where 16 divides them.
    aligned = [n[0] == "*" or (classes % 16 == 0 and a in ("classes", "stride")) for a, n in types.items()]
    attributes = {(i,): [["tt.divisibility", 16]] for i, yes in enumerate(aligned) if yes}
    source = ASTSource(kernel, types, constants, attributes)
    flags = {"num_warps": warps, "enable_fp_fusion": True}
    compiled = triton.compile(source, target=GPUTarget(*target), options=flags)
    elements = options.get("height", 1) * options["width"]
    return Compiled(compiled.asm, 32 * warps, elements, "height" not in options)


def _type(argument: str, dtype: torch.dtype) -> str:
    if argument in ("rows", "classes", "stride"):
        return "i32"
    if argument in ("logits", "gradient"):
        return f"*{NAMES[dtype]}"
    special = {"prediction": "*i64", "squares": "*fp64", "on_squares": "*fp64"}
    return special.get(argument, f"*{NAMES[accumulator(dtype)]}")


def moved_bytes(ptx: str, operation: str) -> int:
    """Bytes that one thread moves by all instructions `ld.global` or `st.global` that stand in the code."""
    found = re.findall(rf"\b{operation}\.global[\w:.]*?(?:\.v(\d))?\.b(\d+)\b", ptx)
    return sum(int(count or 1) * int(bits) // 8 for count, bits in found)


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
