"""Compiles the C++ of `cpu/` with the machine's own compiler, once, and loads it."""

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
# No -ffast-math: NaN and infinity must come through, and the order of sums is part of their accuracy.
FLAGS = ("-std=c++17", "-O3", "-shared", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")


_lock = threading.Lock()


def library() -> ctypes.CDLL:
    """The compiled kernels, from the cache if they were compiled on such a machine before."""
    with _lock:  # two threads that compile at once would be in each other's way
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
    """$CXX, or the first C++ compiler that there is."""
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
    """With OpenMP (that of GCC shares its threads with torch), or without, where the compiler has none."""
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
    """What code for this very machine depends on: a cache may be shared by several."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    features = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    return platform.machine() + platform.processor() + "".join(sorted(set(features)))
