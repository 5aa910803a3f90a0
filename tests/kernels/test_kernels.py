"""Runs the checks of the kernels in a process of their own: Triton decides at import whether it interprets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.cases import needs_native
from torch_boc.kernels.cpu import library

HERE = Path(__file__).parent
CHECKS = ("forward", "backward", "row_operators", "coin_checks", "standing_checks", "tail_checks", "tail_operators")
TRITON_CHECKS = (*CHECKS, "split_checks", "pair_checks")
# Processes of about the same length, and few of them: the start of each costs seconds.
INTERPRETED = (("split_checks",), CHECKS[:2], (*CHECKS[2:], "pair_checks"))
needs_triton = pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")


def run_checks(*names, **environment):
    files = [str(HERE / f"{name}.py") for name in names]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
    # NumPy, on which the interpreter computes, warns of infinities that a GPU takes as they come.
    command += ["-W", "ignore::RuntimeWarning:triton.runtime.interpreter"]
    run = subprocess.run(
        command, cwd=HERE.parents[1], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]


@needs_triton
@pytest.mark.parametrize("names", INTERPRETED, ids=" ".join)
def test_in_the_interpreter(names):
    pytest.importorskip("triton", minversion="3.3")  # the interpreter of 3.2 fails with NumPy 2.4
    run_checks(*names, TRITON_INTERPRET="1")


@needs_native
def test_native_on_the_cpu():
    run_checks(*CHECKS, TRITON_INTERPRET="0", TORCH_BOC_CHECKS_ON="cpu")


@pytest.mark.slow
@needs_native
@pytest.mark.parametrize("variant", library.present()[:-1])
def test_the_slower_variants(variant):
    """Those that this CPU can run and does not take by itself; torch is told that the CPU can do less."""
    capability = "default" if variant == "baseline" else variant
    run_checks(*CHECKS, TRITON_INTERPRET="0", TORCH_BOC_CHECKS_ON="cpu", ATEN_CPU_CAPABILITY=capability)


def test_importing_the_kernels_needs_no_triton():
    code = "import sys; sys.modules['triton'] = None; import torch_boc.kernels.tails; "
    code += "assert not any(name.endswith('_triton') for name in sys.modules if 'torch_boc' in name)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=HERE.parents[1])
