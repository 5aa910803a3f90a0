"""`make release-check`: build what would be published, and try each file in an environment without the extras.

It needs the packages of the group `release`, and takes torch from the package index, once for all files.
"""

import os
import subprocess
import sys
import time
import venv
from pathlib import Path

from tests.examples.blocks import GUIDE, first_snippet

ROOT = GUIDE.parents[1]
BIN = "Scripts" if os.name == "nt" else "bin"
# Every name of the package is there, the version is that of the file, and the libraries are where they should be.
IMPORTS = """
import sys, torch_boc
from torch_boc.kernels.cpu import loader
from torch_boc.kernels.selftest import self_test
version, native = sys.argv[1:]
assert torch_boc.__version__ == version, torch_boc.__version__
assert all(hasattr(torch_boc, name) for name in torch_boc.__all__)
assert native == "either" or (loader.variant() is not None) == (native == "yes"), loader.variant()
assert not loader.variant() or not self_test("cpu"), self_test("cpu")
assert torch_boc.zoo.load("resnet20-cifar10").ood
print(f"torch_boc {version} from {torch_boc.__path__[0]}, native library: {loader.variant()}")
"""
# What a user without the extra `cli` is told.
HINT = "pip install 'torch-boc[cli]'"


def main(folder: Path) -> None:
    """Build, check and try everything, and say how long it took."""
    start = time.monotonic()
    files = build(folder / "dist")
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    venv.create(folder / "environment", clear=True, with_pip=True)
    for file in files:
        try_out(folder / "environment" / BIN / "python", file, folder)
    say(f"{len(files)} files are fit to be published, after {time.monotonic() - start:.0f} s.")


def build(dist: Path) -> list[Path]:
    """The source archive; the wheel that is built from it; and the wheel without native libraries."""
    for old in dist.glob("*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", dist, ROOT)
    pure = {**os.environ, "TORCH_BOC_NATIVE": "0"}
    run(sys.executable, "-m", "build", "--wheel", "--outdir", dist, ROOT, env=pure)
    return sorted(dist.iterdir())


def try_out(python: Path, file: Path, folder: Path) -> None:
    """Install a file with what it requires, run the smoke tests, and remove the package, but not what it requires."""
    say(f"{file.name}, {file.stat().st_size / 1e6:.2f} MB: installing it, and the smoke tests")
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(*pip, "install", file)
    version = file.name.removesuffix(".tar.gz").split("-")[1]
    native = "either" if file.suffix == ".gz" else "no" if file.stem.endswith("-any") else "yes"
    run(python, "-I", "-c", IMPORTS, version, native, cwd=folder)
    run(python, "-I", "-c", first_snippet(), cwd=folder)
    hint = subprocess.run([python.parent / "torch-boc", "doctor"], capture_output=True, text=True, check=False)
    if HINT not in hint.stderr:
        raise SystemExit(f"torch-boc without its extra: expected {HINT!r}, got {hint.stdout + hint.stderr!r}")
    run(*pip, "uninstall", "--yes", "torch-boc")


def run(*command: object, **options: object) -> None:
    """Run a command; the first that fails ends everything."""
    done = subprocess.run([str(word) for word in command], check=False, **options)
    if done.returncode:
        raise SystemExit(f"release-check: exit code {done.returncode} of {' '.join(map(str, command))[:500]}")


def say(line: str) -> None:
    """Print a line that stands out among the output of the tools."""
    print(f"release-check: {line}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
