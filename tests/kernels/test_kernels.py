"""Runs the checks of the kernels in a process of their own: Triton decides at import whether it interprets."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kernels.cases import needs_native
from torch_boc.kernels.cpu import library

HERE = Path(__file__).parent
CHECKS = ("forward", "backward", "row_operators", "coin_checks", "standing_checks", "tail_checks", "tail_operators")
TRITON_CHECKS = (*CHECKS, "split_checks", "pair_checks")
INTERPRETED = "test_in_the_interpreter"
needs_triton = pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")


def run_checks(name, **environment):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(HERE / f"{name}.py")]
    # NumPy, on which the interpreter computes, warns of infinities that a GPU takes as they come.
    command += ["-W", "ignore::RuntimeWarning:triton.runtime.interpreter"]
    run = subprocess.run(
        command, cwd=HERE.parents[1], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]


@pytest.fixture(scope="module")
def begun(request):
    """The selected checks in the interpreter, which take minutes, begun on all cores with the first of them."""
    here = [x for x in request.session.items if x.path == Path(__file__)]
    selected = [x.callspec.params["name"] for x in here if x.originalname == INTERPRETED]
    with ThreadPoolExecutor(os.cpu_count()) as cores:
        yield {name: cores.submit(run_checks, name, TRITON_INTERPRET="1") for name in selected}


@needs_triton
@pytest.mark.parametrize("name", TRITON_CHECKS)
def test_in_the_interpreter(name, begun):
    pytest.importorskip("triton", minversion="3.3")  # the interpreter of 3.2 fails with NumPy 2.4
    begun[name].result()


@needs_native
@pytest.mark.parametrize("name", CHECKS)
def test_native_on_the_cpu(name):
    run_checks(name, TRITON_INTERPRET="0", TORCH_BOC_CHECKS_ON="cpu")


@pytest.mark.slow
@needs_native
@pytest.mark.parametrize("variant", library.present()[:-1])
@pytest.mark.parametrize("name", CHECKS)
def test_the_slower_variants(name, variant):
    """Those that this CPU can run and does not take by itself; torch is told that the CPU can do less."""
    capability = "default" if variant == "baseline" else variant
    run_checks(name, TRITON_INTERPRET="0", TORCH_BOC_CHECKS_ON="cpu", ATEN_CPU_CAPABILITY=capability)


def test_importing_the_kernels_needs_no_triton():
    code = "import sys; sys.modules['triton'] = None; import torch_boc.kernels.tails; "
    code += "assert not any(name.endswith('_triton') for name in sys.modules if 'torch_boc' in name)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=HERE.parents[1])
