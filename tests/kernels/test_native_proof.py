"""Slow checks of the native library: sanitizers, sizes beyond 2^31, and the variants that this CPU would not choose."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hatch_build import find_compiler
from tests.kernels.cases import needs_native
from torch_boc.functional.tallies import empty_tally
from torch_boc.kernels.cpu import calls, library, variants

pytestmark = [pytest.mark.slow, needs_native]
HERE = Path(__file__).parent
SANITIZERS = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")


@pytest.mark.parametrize("variant", library.present())
def test_sanitizers_find_nothing(variant, tmp_path):
    """AddressSanitizer and UndefinedBehaviorSanitizer, over every function and many shapes."""
    program = tmp_path / "driver"
    flags = [flag for flag in variants.FLAGS if flag not in ("-shared", "-O3")]
    flags += ["-O1", "-g", '-DBOC_SOURCES=""', *SANITIZERS, *variants.variants()[variant]]
    code = [*(x for x in variants.sources() if x.suffix == ".cpp"), HERE / "native_driver.cpp"]
    command = [*find_compiler(), *flags, *map(str, code), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find" in built.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr[-3000:]
    run = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout == "done\n"


@pytest.mark.parametrize("name", ["test_native_numbers.py", "test_native_tallies.py"])
@pytest.mark.parametrize("variant", library.present()[:-1])
def test_the_slower_variants(name, variant):
    capability = "default" if variant == "baseline" else variant
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(HERE / name)]
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
    run = subprocess.run(command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-5000:]


@pytest.mark.parametrize("classes", [40, 300, 70_000])
def test_more_logits_than_an_int32_counts(classes):
    """The same few rows again and again, without their memory."""
    rows = 2**31 // classes // 5 * 5 + 10
    few = torch.randn(5, classes, generator=torch.Generator().manual_seed(0)).bfloat16()
    logits = few.expand(rows // 5, 5, classes)
    assert logits.numel() > 2**31
    if classes > 40:  # else the results would take gigabytes
        for value, expected in zip(calls.coins_of(logits), calls.coins_of(few), strict=True):
            assert torch.equal(value, expected.expand_as(value))
    states, once = empty_tally(), empty_tally()
    calls.tally(logits, None, None, 100, 0.05, states)
    calls.tally(few, None, None, 100, 0.05, once)
    assert torch.equal(states.counts, once.counts * (rows // 5))
    assert torch.equal(states.gap_histogram, once.gap_histogram * (rows // 5))
    torch.testing.assert_close(states.sums, once.sums * (rows // 5), rtol=1e-9, atol=0)


def test_offsets_beyond_an_int32():
    """Memory of 4.3 GB, which is read at its ends only."""
    memory = torch.empty(2**31 + 4096, dtype=torch.bfloat16)
    logits = torch.as_strided(memory, (3, 2000), (2**30, 1))
    logits.copy_(torch.randn(3, 2000, generator=torch.Generator().manual_seed(0)))
    for value, expected in zip(calls.coins_of(logits), calls.coins_of(logits.clone()), strict=True):
        assert torch.equal(value, expected)
