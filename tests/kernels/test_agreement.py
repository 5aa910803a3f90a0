"""The kernels give what the formulas of `core` give: in C++, in Triton's interpreter, and on a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.kernels.cases import CASES, INTERPRETED, LONG_CASES, agree, agree_on_bets, needs_native
from torch_boc.core.coins import Coins
from torch_boc.core.schema import GAP_EDGES
from torch_boc.core.tally import add_samples, empty_tally
from torch_boc.kernels import operators
from torch_boc.kernels.cpu import loader

over_cases = pytest.mark.parametrize("case", CASES, ids=str)
over_all_cases = pytest.mark.parametrize("case", CASES + LONG_CASES, ids=str)


@needs_native
@over_all_cases
def test_native(case):
    agree("native", case)


@needs_native
def test_gaps_at_an_edge_are_in_the_same_bin():
    """A logarithm that is off by one unit in the last place would put some into the bin below."""
    edges = torch.tensor(GAP_EDGES[:-1], dtype=torch.float64)
    odds = (edges / (1 - edges)).repeat(5) * (1 + torch.arange(-2, 3).repeat_interleave(len(edges)) * 2.0**-52)
    coins = Coins(torch.zeros_like(odds, dtype=torch.int64), odds, *torch.zeros(3, len(odds), dtype=torch.float64))
    found, expected = empty_tally(), empty_tally()
    operators.tally([*coins[:5]], (None, None, None), 10, 0, 0.05, *found)
    add_samples(expected, coins, None, (None, None, None), 10, 0.05)
    assert torch.equal(found.gap_histogram, expected.gap_histogram)


@pytest.mark.skipif(not INTERPRETED, reason="run by test_interpreted, in a process of its own")
@over_cases
def test_triton(case):
    agree("triton", case)


ways = pytest.mark.parametrize(("endless", "mixed"), [(False, True), (True, False)])


@pytest.mark.skipif(not INTERPRETED, reason="run by test_interpreted, in a process of its own")
@ways
def test_triton_bets(endless, mixed):
    agree_on_bets(endless, mixed)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@ways
def test_gpu_bets(endless, mixed):
    agree_on_bets(endless, mixed, "cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@over_all_cases
def test_gpu(case):
    agree("triton", case, "cuda")


def run_here(which, **environment):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__, "-k", which]
    # NumPy, on which the interpreter computes, warns of infinities that a GPU takes as they come.
    command += ["-W", "ignore::RuntimeWarning:triton.runtime.interpreter"]
    command += ["-W", "ignore:Conversion of an array:DeprecationWarning:triton.runtime.interpreter"]  # Triton 3.3
    root = Path(__file__).parents[2]
    run = subprocess.run(
        command, cwd=root, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]


@pytest.mark.skipif(INTERPRETED or sys.platform != "linux", reason="Triton is for Linux")
def test_interpreted():
    """Triton decides at import whether it interprets."""
    triton = pytest.importorskip("triton", minversion="3.3")
    if triton.__version__ < "3.5" and np.lib.NumpyVersion(np.__version__) >= "2.4.0":
        pytest.skip("NumPy 2.4 breaks the interpreter of Triton 3.3 and 3.4: run `make oldest`")
    run_here("test_triton", TRITON_INTERPRET="1")


@pytest.mark.slow
@needs_native
@pytest.mark.parametrize("variant", loader.present()[:-1])
def test_the_slower_variants(variant):
    """Those that this CPU can run and does not take by itself; torch is told that the CPU can do less."""
    run_here("test_native", ATEN_CPU_CAPABILITY="default" if variant == "baseline" else variant)


@pytest.mark.slow
@needs_native
def test_offsets_beyond_an_int32():
    """Memory of 4.3 GB, which is read at its ends only."""
    from torch_boc.functional import bag_of_coins

    memory = torch.empty(2**31 + 4096, dtype=torch.bfloat16)
    logits = torch.as_strided(memory, (3, 2000), (2**30, 1))
    logits.copy_(torch.randn(3, 2000, generator=torch.Generator().manual_seed(0)))
    for value, expected in zip(bag_of_coins(logits)[:5], bag_of_coins(logits.clone())[:5], strict=True):
        assert torch.equal(value, expected)
