"""What the compilers make of the kernels, without a GPU: nothing in local memory, and the traffic of the design."""

import pytest
import torch

from tests.kernels.offline import OFFLINE, assemble, compile_kernel, longest_load, moved_bytes
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
    if name == "rows" and compiled.long:
        # The code has three loops, for top, place and sums, and a load with and without a mask in each; and it reads
        # the tops, keys and sums of parts.
        assert read == whole * 6 + 8 * (6 if extras else 4)
    elif name == "rows":
        assert read == whole
    elif compiled.long:
        # A block is stored with and without its top; beside it the top's own gradient, and the sum of a part.
        assert written == 2 * whole + size + 8
        # Beside the logits: prediction, top, the gradients of three or five sums, and the sums of parts.
        assert read == whole + 8 + wide + 8 + (4 if extras else 2) * wide + 8
    else:
        assert written == whole


@over_kernels
@pytest.mark.parametrize("classes", [10, 50272])
def test_amd(name, classes):
    code = compile_kernel(name, classes, torch.float32, extras=True, target=MI300).asm["amdgcn"]
    for kind in ("vgpr", "sgpr"):
        assert f".{kind}_spill_count: 0" in " ".join(code.split())


def images(classes, dtype):
    """As of a segmentation network, with the classes moved to the end."""
    return torch.empty(2, classes, 16, 8, dtype=dtype).movedim(1, -1)


def shifted(classes, dtype):
    """As of a language model whose last token predicts nothing."""
    return torch.empty(2, 9, classes, dtype=dtype)[:, :-1]


@over_nvidia
@over_kernels
@pytest.mark.parametrize(
    ("cut", "classes", "dtype"),
    [(images, 21, torch.float32), (images, 150, torch.bfloat16), (shifted, 50257, torch.bfloat16)]
    + [pytest.param(images, c, d, marks=pytest.mark.slow) for c in (2, 19, 1000, 16384) for d in DTYPES]
    + [pytest.param(shifted, c, d, marks=pytest.mark.slow) for c in (10, 1000, 50272) for d in DTYPES],
)
def test_views_do_not_spill(name, cut, classes, dtype, target, tmp_path):
    compiled = compile_kernel(name, classes, dtype, extras=True, cut=cut, target=target)
    registers, local = assemble(compiled.asm["ptx"], tmp_path / "kernel.ptx")
    assert local == 0, f"{local} bytes of local memory with {registers} registers"


@pytest.mark.parametrize(
    ("cut", "classes", "dtype"),
    [
        (None, 1000, torch.float32),  # 8 divides the classes
        (None, 1000, torch.bfloat16),
        (None, 50257, torch.bfloat16),  # from an aligned address on
        (images, 21, torch.float32),  # pixels
        (images, 150, torch.bfloat16),
        (shifted, 50257, torch.float32),
    ],
)
def test_logits_are_loaded_in_vectors(cut, classes, dtype):
    ptx = compile_kernel("rows", classes, dtype, extras=False, cut=cut, target=A100).asm["ptx"]
    assert longest_load(ptx) == 16


@pytest.mark.parametrize("classes", [1001, 21])
def test_other_rows_are_not(classes):
    """As a check of the test above."""
    assert longest_load(compile_kernel("rows", classes, torch.float32, extras=False, target=A100).asm["ptx"]) == 4


@over_nvidia
@pytest.mark.parametrize("classes", [10, 1000, 50272])
def test_no_division_and_no_denormals(classes, target):
    ptx = compile_kernel("rows", classes, torch.float32, extras=False, target=target).asm["ptx"]
    assert "div.full" not in ptx
    assert "rcp.approx.ftz.f32" in ptx
    assert "ex2.approx.f32" not in ptx
