"""What the compilers make of the kernels, without a GPU: nothing in local memory, and the traffic of the design."""

import pytest
import torch

from tests.kernels.offline import OFFLINE, assemble, compile_kernel, moved_bytes
from torch_boc.core.precision import accumulator

pytestmark = OFFLINE
A100, H100, MI300 = ("cuda", 80, 32), ("cuda", 90, 32), ("hip", "gfx942", 64)
DTYPES = (torch.float32, torch.bfloat16, torch.float64)
EVERY = [
    (c, d, e) for c in (2, 10, 16, 50, 64, 100, 256, 1000, 2048, 4096, 8192) for d in DTYPES for e in (False, True)
]
FEW = [(c, d, True) for c in (10, 16384, 50272) for d in DTYPES]
over_kernels = pytest.mark.parametrize("name", ["rows", "gradients"])
over_nvidia = pytest.mark.parametrize("target", [A100, H100], ids=["sm_80", "sm_90"])


@over_nvidia
@over_kernels
@pytest.mark.parametrize(
    ("classes", "dtype", "extras"), [*FEW, *(pytest.param(*case, marks=pytest.mark.slow) for case in EVERY)]
)
def test_nothing_spills(name, classes, dtype, extras, target, tmp_path):
    compiled = compile_kernel(name, classes, dtype, extras=extras, target=target)
    registers, local = assemble(compiled.asm["ptx"], tmp_path / "kernel.ptx")
    assert local == 0, f"{local} bytes of local memory with {registers} registers"
    assert_traffic(name, compiled, dtype, extras)


@over_nvidia
@pytest.mark.parametrize(
    ("classes", "dtype"),
    [(10, torch.float32), (50272, torch.bfloat16)]
    + [pytest.param(c, d, marks=pytest.mark.slow) for c in (2, 100, 1000, 4096, 16384, 50272) for d in DTYPES],
)
def test_gradients_of_the_concentration_do_not_spill(classes, dtype, target, tmp_path):
    compiled = compile_kernel("gradients", classes, dtype, extras=True, spread=True, target=target)
    registers, local = assemble(compiled.asm["ptx"], tmp_path / "kernel.ptx")
    assert local == 0, f"{local} bytes of local memory with {registers} registers"


def assert_traffic(name, compiled, dtype, extras):
    """A logit is read once, for the sums of a long row twice; a gradient is written once."""
    size, wide = dtype.itemsize, accumulator(dtype).itemsize
    whole = compiled.elements * size // compiled.threads
    read, written = (moved_bytes(compiled.asm["ptx"], operation) for operation in ("ld", "st"))
    if name == "rows":
        assert read == whole * (2 if compiled.long else 1)
    else:
        # The code of a long row has its block twice: in the loop, and for the block with the top in it.
        blocks = 2 if compiled.long else 1
        assert written == blocks * whole
        if compiled.long:  # beside the logits: prediction, top, and the gradients of three or five sums
            assert read == blocks * whole + 8 + wide + 8 + (4 if extras else 2) * wide


@over_kernels
@pytest.mark.parametrize("classes", [10, 50272])
def test_amd(name, classes):
    code = compile_kernel(name, classes, torch.float32, extras=True, target=MI300).asm["amdgcn"]
    for kind in ("vgpr", "sgpr"):
        assert f".{kind}_spill_count: 0" in " ".join(code.split())
