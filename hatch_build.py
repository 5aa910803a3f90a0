"""Compiles the C++ code of torch_boc/kernels/cpu into native libraries.

Hatchling runs it for every wheel and every editable installation. By hand, `python hatch_build.py` (or `make native`)
compiles what has changed into the source tree; that needs the standard library only.

Without a C++ compiler the wheel is pure Python, and everything is computed by torch's operations. The environment
decides more: $CXX names the compiler, TORCH_BOC_NATIVE=0 leaves the libraries out, and TORCH_BOC_NATIVE=1 makes their
absence an error.
"""

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    BuildHookInterface = object

ROOT = Path(__file__).parent
CODE = ROOT / "torch_boc" / "kernels" / "cpu"
COMPILERS = ("c++", "g++", "clang++")


def load_plan() -> Any:
    """The module that says what to build, without the package around it, which imports torch."""
    spec = importlib.util.spec_from_file_location("torch_boc_build", CODE / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(folder: Path) -> list[Path]:
    """Compile into `folder` what is missing or old there, and return the libraries; [] with a printed reason."""
    wish = os.environ.get("TORCH_BOC_NATIVE", "")
    if wish == "0":
        say("TORCH_BOC_NATIVE=0: no native library is built.")
        return []
    try:
        return _build(folder)
    except RuntimeError as error:
        if wish == "1":
            raise
        say(f"No native library is built, and torch's operations compute everything: {error}")
        return []


def _build(folder: Path) -> list[Path]:
    plan = load_plan()
    todo = {folder / plan.file_name(name): flags for name, flags in plan.variants().items()}
    if not todo:
        raise RuntimeError(f"there is none for {sysconfig.get_platform()}.")
    digest = plan.digest()
    old = [path for path in todo if not path.exists() or digest.encode() not in path.read_bytes()]
    if old:
        compiler, code = find_compiler(), [str(path) for path in plan.sources() if path.suffix == ".cpp"]
        folder.mkdir(parents=True, exist_ok=True)
        say(f"Compiling {', '.join(path.name for path in old)} with {shlex.join(compiler)}.")
        commands = [[*compiler, *plan.flags(), *todo[path], f'-DBOC_SOURCES="{digest}"', *code] for path in old]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_library, commands, old))
    return list(todo)


def find_compiler() -> list[str]:
    """The compiler in $CXX, or the first C++ compiler that is found."""
    if command := shlex.split(os.environ.get("CXX", "")):
        return command
    for name in COMPILERS:
        if found := shutil.which(name):
            return [found]
    raise RuntimeError(f"there is no C++ compiler ({', '.join(COMPILERS)} or $CXX).")


def compile_library(command: list[str], out: Path) -> None:
    """Run the compiler; the library appears whole, instead of an old one that another process may have loaded."""
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        made = Path(folder) / out.name
        _run([*command, "-o", str(made)])
        made.replace(out)


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except OSError as error:
        raise RuntimeError(f"the C++ compiler {command[0]} does not run ({error}).") from error
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"{shlex.join(command)} failed:\n{error.stderr[-2000:]}") from error


def say(line: str) -> None:
    """Print a line; on stderr, since frontends read the standard output of a build."""
    print(f"torch_boc: {line}", file=sys.stderr, flush=True)


class NativeLibraries(BuildHookInterface):
    """Puts the libraries into wheels, and for an editable installation into the source tree."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it packs a wheel."""
        if version == "editable":
            build(CODE / "lib")
            return
        self._folder = tempfile.TemporaryDirectory()
        for path in build(Path(self._folder.name)):
            build_data["force_include"][str(path)] = f"torch_boc/kernels/cpu/lib/{path.name}"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_platform_tag()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact: str) -> None:
        """Called by hatchling when the wheel is there."""
        if version != "editable":
            self._folder.cleanup()


def _platform_tag() -> str:
    """The platform as a wheel's name has it; on a Mac for the one architecture that was compiled.

    There $MACOSX_DEPLOYMENT_TARGET names the oldest system that the compiler has been asked to serve.
    """
    if sys.platform == "darwin":
        from packaging.tags import mac_platforms  # hatchling needs this package too

        oldest = os.environ.get("MACOSX_DEPLOYMENT_TARGET") or platform.mac_ver()[0]
        major, minor, *_ = map(int, f"{oldest}.0".split("."))
        return next(mac_platforms((major, minor), platform.machine()))
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


if __name__ == "__main__":
    build(CODE / "lib")
