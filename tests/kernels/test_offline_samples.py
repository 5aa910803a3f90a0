"""What the compilers make of coins and tails, without a GPU: no local memory, numbers moved once, how much work."""

import pytest
import torch

from tests.kernels.offline import (
    OFFLINE,
    assemble,
    compile_coins,
    compile_kernel,
    compile_spread,
    compile_tails,
    moved_bytes,
)
from tests.kernels.sass import count
from tests.kernels.test_offline import MI300, over_nvidia
from torch_boc.core.precision import accumulator

pytestmark = OFFLINE
over_kernels = pytest.mark.parametrize("name", ["log_tails", "log_p_values"])
over_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@over_nvidia
@over_dtypes
@over_kernels
def test_nothing_spills_and_every_number_moves_once(name, dtype, target, tmp_path):
    compiled = compile_tails(name, dtype, target=target)
    ptx, each = compiled.asm["ptx"], compiled.elements // compiled.threads
    registers, local = assemble(ptx, tmp_path / "kernel.ptx")
    assert local == 0, f"{local} bytes of local memory with {registers} registers"
    assert registers <= 64  # so that 1024 of at most 2048 threads share a multiprocessor
    assert moved_bytes(ptx, "ld") == each * 2 * dtype.itemsize
    assert moved_bytes(ptx, "st") == each * 2 * 8


@over_nvidia
@over_dtypes
def test_coins_do_not_spill_and_every_number_moves_once(dtype, target, tmp_path):
    compiled = compile_coins(dtype, target=target)
    ptx, each = compiled.asm["ptx"], compiled.elements // compiled.threads
    assert assemble(ptx, tmp_path / "kernel.ptx")[1] == 0
    assert moved_bytes(ptx, "ld") == each * (dtype.itemsize + 3 * 8)
    assert moved_bytes(ptx, "st") == each * 3 * dtype.itemsize


@over_nvidia
@pytest.mark.parametrize("log_rest", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_spread_does_not_spill_and_leaves_at_once_where_no_row_is_flat(dtype, log_rest, target, tmp_path):
    compiled = compile_spread(dtype, target=target, log_rest=log_rest)
    ptx = compiled.asm["ptx"]
    assert assemble(ptx, tmp_path / "kernel.ptx")[1] == 0
    first_branch = ptx.index("bra")
    wide = accumulator(dtype).itemsize
    assert moved_bytes(ptx[:first_branch], "ld") == wide + 8
    # Beside odds and squares: the tops, three numbers of parts, one of them twice, and the logits, of sharp rows twice.
    block = compiled.elements * dtype.itemsize // compiled.threads
    assert moved_bytes(ptx, "ld") == wide + 8 + wide + 4 * 8 + 2 * block


@over_nvidia
@over_dtypes
def test_the_spread_of_rows_that_lie_across_does_not_spill(dtype, target, tmp_path):
    compiled = compile_spread(dtype, target=target, classes=20_000, log_rest=True, across=True)
    assert assemble(compiled.asm["ptx"], tmp_path / "kernel.ptx")[1] == 0


@over_nvidia
@pytest.mark.parametrize(("odd", "even"), [(21, 20), (101, 100)])
def test_narrow_rows_without_vectors_take_hardly_more_instructions(odd, even, target, tmp_path):
    """Before a thread took four neighbours, 21 classes took twice as many as 20."""
    counts = [
        count(
            compile_kernel("rows", classes, torch.float32, extras=False, target=target).asm["cubin"],
            tmp_path / "kernel",
        ).outside
        for classes in (odd, even)
    ]
    assert counts[0] <= 1.1 * counts[1]


@over_nvidia
def test_the_product_that_is_rounded_is_not_fused(target):
    """Two roundings: that of k (1 - loss), and that to a whole number, by adding 1.5 * 2^52."""
    ptx = compile_tails("log_p_values", torch.float32, target=target).asm["ptx"]
    line = next(line for line in ptx.splitlines() if "0d4338000000000000" in line)
    assert line.split()[0] == "add.rn.f64"


@over_kernels
def test_amd(name):
    code = " ".join(compile_tails(name, torch.float32, target=MI300).asm["amdgcn"].split())
    for kind in ("vgpr", "sgpr"):
        assert f".{kind}_spill_count: 0" in code
    assert (code.count("global_load_dword "), code.count("global_store_dwordx2 ")) == (2, 2)


def test_coins_on_amd():
    code = " ".join(compile_coins(torch.float32, target=MI300).asm["amdgcn"].split())
    for kind in ("vgpr", "sgpr"):
        assert f".{kind}_spill_count: 0" in code
