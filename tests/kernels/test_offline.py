"""What the compilers make of the kernels, without a GPU: nothing in local memory, and loads in vectors."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from tests.kernels.cases import INTERPRETED
from torch_boc.core.martingale import empty_stream
from torch_boc.core.schema import COINS, SUMS
from torch_boc.core.tally import empty_tally
from torch_boc.kernels.triton import launch

A100, H100, MI300 = ("cuda", 80, 32), ("cuda", 90, 32), ("hip", "gfx942", 64)
FLOATS, BRAIN, WIDE = torch.float32, torch.bfloat16, torch.float64


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """compiled(start, target): the code of every kernel that `start` would launch, for a GPU that is not here."""
    pytest.importorskip("triton", minversion="3.3")
    if INTERPRETED or sys.platform != "linux":
        pytest.skip("what is interpreted is not compiled, and Triton is for Linux")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    launches = []
    monkeypatch.setattr(launch, "launch", lambda kernel, grid, like, *x, **how: launches.append((kernel, x, how)))

    def compile_all(start, target=A100):
        monkeypatch.setattr(launch, "has_ptx", lambda device: target[0] == "cuda")
        launches.clear()
        start()
        return {found[0].__name__: _compile(*found, target) for found in launches}

    return compile_all


def _compile(kernel, arguments, options, target):
    """As Triton does at a launch; its own functions for that have other names in every version."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    from triton.runtime.jit import mangle_type

    gpu = GPUTarget(*target)
    backend = make_backend(gpu)
    given = {**dict(zip(kernel.signature.parameters, arguments, strict=False)), **options}
    signature, constants, attributes = {}, {}, {}
    for place, parameter in enumerate(kernel.params):
        value = given[parameter.name]
        signature[parameter.name] = "constexpr" if parameter.is_constexpr else mangle_type(value)
        if signature[parameter.name] == "constexpr":
            constants[place,] = value
        elif isinstance(value, torch.Tensor) and not parameter.do_not_specialize:  # torch aligns what it allocates
            attributes[place,] = backend.parse_attr("D")
    parsed = backend.parse_options({**options, "debug": False})
    source = ASTSource(kernel, signature, constants, attributes)
    return triton.compile(source, target=gpu, options=parsed.__dict__).asm


def assembled(ptx, path):
    """Bytes of local memory: the stack, spilled stores and spilled loads together."""
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
            return sum(map(int, local))
    raise AssertionError(run.stderr)


def everything(logits):
    """Launches of all kernels: sums with masses and coins, standing, entropy, gradient, tally, tails and bets."""
    index = torch.zeros(logits.shape[:-1], dtype=torch.int64)
    names = [*SUMS, "loss", "concentration", "free_gap", "log_odds", "lost", "ahead", "gen"]
    found = dict(zip(names, launch.columns(logits, names, index, True), strict=True))
    sums = [found[name] for name in ("prediction", "top", "odds", "mass")]
    launch.gradient(logits, sums, [found[name] for name in SUMS[1:]], torch.empty_like(logits))
    coins = [found["prediction"], *(found[name].double() for name in COINS[1:])]
    launch.tally(coins, (index, coins[1], None), 10, 100, 0.05, *empty_tally())
    launch.log_tails(coins[1], 100, coins[1])
    launch.martingale(coins[1], torch.arange(4), [coins[1], index], 4.6, False, *empty_stream())


@pytest.mark.parametrize(
    ("classes", "dtype", "target"),
    [
        (10, FLOATS, A100),
        (50272, BRAIN, H100),
        *(
            pytest.param(classes, dtype, (A100, H100)[(place + turn) % 2], marks=pytest.mark.slow)
            for place, classes in enumerate((2, 100, 1000, 4096, 16384, 50272))
            for turn, dtype in enumerate((FLOATS, BRAIN, WIDE))
        ),
    ],
)
def test_nothing_spills(classes, dtype, target, compiled, tmp_path):
    found = compiled(lambda: everything(torch.empty(3, classes, dtype=dtype)), target)
    assert len(found) == 8
    for name, asm in found.items():
        local = assembled(asm["ptx"], tmp_path / "kernel.ptx")
        assert local == 0, f"{name}: {local} bytes of local memory"


def test_amd_has_no_ptx_and_does_not_spill(compiled):
    if hasattr(import_module("triton.backends.amd.compiler").HIPBackend, "path_to_rocm_lld"):
        pytest.skip("Triton 3.3 needs the linker of ROCm")
    for name, asm in compiled(lambda: everything(torch.empty(3, 1000)), MI300).items():
        code = " ".join(asm["amdgcn"].split())
        assert ".vgpr_spill_count: 0" in code, name


@pytest.mark.parametrize(
    ("logits", "size"),
    [
        (torch.empty(3, 1000), 16),  # 8 divides the classes
        (torch.empty(3, 50257, dtype=BRAIN), 16),  # from an aligned address on
        (torch.empty(2, 21, 16, 8).movedim(1, -1), 16),  # pixels, with the classes moved to the end
        (torch.empty(2, 9, 50257)[:, :-1], 16),  # of a language model whose last token predicts nothing
        (torch.empty(3, 1001), 4),
    ],
)
def test_logits_are_loaded_in_vectors(logits, size, compiled):
    found = compiled(lambda: launch.columns(logits, ["prediction", "odds"], None, True))
    (ptx,) = [asm["ptx"] for asm in found.values()]
    loads = re.findall(r"\bld\.global[\w:.]*?(?:\.v(\d))?\.b(\d+)\b", ptx)
    assert max(int(count or 1) * int(bits) // 8 for count, bits in loads) == size
    assert "div.full" not in ptx
    assert "rcp.approx.ftz.f32" in ptx
