"""Sanitizers find nothing in the native library."""

import subprocess
from pathlib import Path

import pytest

from hatch_build import find_compiler
from tests.kernels.cases import needs_native
from torch_boc.kernels.cpu import build, loader

pytestmark = [pytest.mark.slow, needs_native]
SANITIZERS = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")


@pytest.mark.parametrize("variant", loader.present())
def test_sanitizers_find_nothing(variant, tmp_path):
    """AddressSanitizer and UndefinedBehaviorSanitizer, over every function and many shapes."""
    program = tmp_path / "driver"
    flags = [flag for flag in build.FLAGS if flag not in ("-shared", "-O3")]
    flags += ["-O1", "-g", '-DBOC_SOURCES=""', f"-I{build.FOLDER}", *SANITIZERS, *build.variants()[variant]]
    code = [*(x for x in build.sources() if x.suffix == ".cpp"), Path(__file__).parent / "native_driver.cpp"]
    command = [*find_compiler(), *flags, *map(str, code), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find" in built.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr[-3000:]
    run = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout == "done\n"
