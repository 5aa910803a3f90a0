"""Compiles the C++ code of `cpu/` once, with the compiler of this machine, and loads it."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import threading
from functools import lru_cache
from pathlib import Path

from ..storage.files import default_cache, replacing

SOURCES = Path(__file__).parent / "cpu"
COMPILERS = ("c++", "g++", "clang++")
# No -ffast-math: NaN and infinity must be kept, and a changed order of summation would be less accurate.
FLAGS = ("-std=c++17", "-O3", "-shared", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")


_lock = threading.Lock()


def library() -> ctypes.CDLL:
    """The compiled kernels, from the cache if they were compiled on a machine like this before."""
    with _lock:  # only one thread compiles at a time
        return _library()


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    compiler = find_compiler()
    sources = sorted(x for x in SOURCES.iterdir() if x.suffix in (".cpp", ".h"))
    flags = [*FLAGS, f"-m{'arch' if platform.machine() in ('x86_64', 'AMD64') else 'cpu'}=native"]
    version = _run([*compiler, "--version"])
    facts = [*compiler, version, *flags, _processor(), *(path.read_text(encoding="utf-8") for path in sources)]
    name = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
    path = default_cache() / "kernels" / f"{name}.so"
    try:
        if not path.exists():
            with replacing(path) as temporary:
                _compile(compiler, flags, [str(x) for x in sources if x.suffix == ".cpp"], temporary)
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise RuntimeError(
            f"could not keep the compiled kernels in {path.parent} ({error}): let $XDG_CACHE_HOME name a folder that "
            'can be written and loaded from, or choose another path, as in torch_boc.kernels.use("torch")'
        ) from error


def find_compiler() -> list[str]:
    """The compiler in $CXX, or the first C++ compiler that is found."""
    if command := shlex.split(os.environ.get("CXX", "")):
        return command
    for name in COMPILERS:
        if found := shutil.which(name):
            return [found]
    raise RuntimeError(
        f"the compiled path needs a C++ compiler ({', '.join(COMPILERS)} or $CXX), and there is none: install one, or "
        'choose another path, as in torch_boc.kernels.use("torch")'
    )


def _compile(compiler: list[str], flags: list[str], sources: list[str], out: Path) -> None:
    """Compile with OpenMP, or without if the compiler has none. OpenMP of GCC shares its threads with torch."""
    try:
        _run([*compiler, *flags, "-fopenmp", *sources, "-o", str(out)])
    except RuntimeError:
        _run([*compiler, *flags, *sources, "-o", str(out)])


def _run(command: list[str]) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except OSError as error:
        raise RuntimeError(f"could not run the C++ compiler {command[0]}: {error}") from error
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"{shlex.join(command)} failed:\n{error.stderr[-2000:]}") from error


def _processor() -> str:
    """A text for the processor, since a cache may be shared by machines for which the code is not the same."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    features = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    return platform.machine() + platform.processor() + "".join(sorted(set(features)))
