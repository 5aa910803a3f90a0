"""The package as users install it: built from its source archive, in an environment that has what it requires alone."""

import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.installed import requirements
from tests.release import IMPORTS
from tests.systems import unix_only

pytestmark = [pytest.mark.slow, unix_only]
ROOT = Path(__file__).parents[1]


def run(*command, **environment):
    """What a command prints, in an environment without the paths of this process."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CXX", "TORCH_BOC_NATIVE")}
    done = subprocess.run(
        [str(x) for x in command], env={**kept, **environment}, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def make_environment(folder):
    """An empty virtual environment; pip of this process installs into it."""
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


def pip(python, *args):
    run(sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet", *args)


@pytest.fixture(scope="module")
def builder(tmp_path_factory):
    """A Python with hatchling, which builds what a folder holds; gives the file."""
    python = make_environment(tmp_path_factory.mktemp("builder"))
    pip(python, "hatchling>=1.26")

    def build(target, source, out, **environment):
        code = "import sys, os\nos.chdir(sys.argv.pop(1))\nfrom hatchling.cli import hatchling\nhatchling()"
        run(python, "-c", code, source, "build", "-t", target, "-d", out, **environment)
        (file,) = out.iterdir()
        return file

    return build


@pytest.fixture(scope="module")
def archive(builder, tmp_path_factory):
    """The source archive of this checkout, unpacked."""
    out = tmp_path_factory.mktemp("archive")
    file = builder("sdist", ROOT, out / "packed")
    with tarfile.open(file) as packed:
        packed.extractall(out, filter="data")
    return out / file.name.removesuffix(".tar.gz")


def link(folder, *names):
    """Symbolic links to installed distributions. Another copy of torch would take gigabytes and minutes."""
    folder.mkdir()
    for distribution in requirements(*names):
        home = Path(str(distribution.locate_file("")))
        tops = {Path(str(file)).parts[0] for file in distribution.files or []} - {"..", "__pycache__"}
        for name in tops:
            if not (folder / name).exists():
                (folder / name).symlink_to(home / name)
    return folder


@pytest.fixture
def try_wheel(builder, archive, tmp_path):
    """Builds a wheel, and tries it with torch and torchmetrics alone; gives its name, its files and its native path."""

    def build(native, **environment):
        wheel = builder("wheel", archive, tmp_path / "out", **environment)
        python = make_environment(tmp_path / "environment")
        pip(python, "--no-deps", wheel)
        (site,) = (tmp_path / "environment").glob("lib/python*/site-packages")
        (site / "required.pth").write_text(str(link(tmp_path / "required", "torch", "torchmetrics")))
        assert str(tmp_path) in run(python, "-c", IMPORTS, wheel.name.split("-")[1], native)
        extra = link(tmp_path / "extra", "rich", "typer")  # the packages of the `cli` extra, and no others
        doctor = json.loads(run(python.parent / "torch-boc", "doctor", "--json", PYTHONPATH=str(extra)))
        with zipfile.ZipFile(wheel) as packed:
            return wheel.name, packed.namelist(), doctor["paths"][0]

    return build


def test_a_wheel_with_native_libraries(try_wheel):
    name, files, native = try_wheel("yes", TORCH_BOC_NATIVE="1")
    assert re.search(r"-py3-none-(?!any)\w+\.whl$", name)
    assert not [file for file in files if file.endswith((".cpp", ".h"))]
    assert (native["available"], native["self_test"]) == (True, "")


def test_a_wheel_without_a_compiler(try_wheel, archive, tmp_path):
    assert not (archive / "torch_boc" / "kernels" / "cpu" / "lib").exists()
    (tmp_path / "nothing").mkdir()
    name, files, native = try_wheel("no", PATH=str(tmp_path / "nothing"))
    assert name.endswith("-py3-none-any.whl")
    assert not [file for file in files if "/lib/" in file or file.endswith((".cpp", ".h"))]
    assert (native["available"], native["self_test"]) == (False, None)
    assert "there was no C++ compiler when it was built" in native["why_not"]
