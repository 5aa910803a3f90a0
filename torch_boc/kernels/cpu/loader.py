"""Loads the native library that fits this CPU, from the package's own folder and nowhere else."""

import ctypes
import os
import re
from functools import lru_cache
from pathlib import Path

import torch

from ...core.schema import schema_text
from .build import FOLDER, digest, file_name, variants

LIBRARIES = FOLDER / "lib"
# How many of the variants, in their order, the CPU can run, by the capability that torch gives. Any other name means 1.
_RUNNABLE = {"AVX2": 2, "AVX512": 3}
# What an OpenMP gives to every program that GCC compiles.
_THREADS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_MAPS = Path("/proc/self/maps")
_PROCESS = os.getpid()

_POINTER, _SIZE, _NUMBER, _REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_double
LOGITS = [_POINTER] + [_SIZE] * 6 + [_NUMBER] * 2
_TRIALS = [_SIZE, _NUMBER, _POINTER]
_TALLY = [*_TRIALS, _REAL, _SIZE, _POINTER]
_SIGNATURES = {
    "boc_columns": [*LOGITS, _POINTER, _NUMBER, _POINTER],
    "boc_gradient": [*LOGITS, _POINTER, _POINTER],
    "boc_tally": [_POINTER, _SIZE, _SIZE, _NUMBER, *_TALLY],
    "boc_tally_logits": [*LOGITS, _POINTER, _POINTER, *_TALLY],
    "boc_log_tails": [_POINTER] * 4 + [_SIZE, _NUMBER, *_TRIALS],
}


@lru_cache
def library(variant: str | None = None) -> ctypes.CDLL:
    """The library of one variant, by default of the fastest that this CPU can run; RuntimeError if there is none."""
    name = variant or chosen()[0]
    if name is None:
        raise RuntimeError(f"the native path is not available: {why_not()}")
    return _load(LIBRARIES / file_name(name))


def variant() -> str | None:
    """The variant in use, which this CPU can run and this process can load; None if there is none."""
    return chosen()[0]


def why_not() -> str:
    """Why there is no native path, and what to do about it; an empty text if there is one."""
    return chosen()[1]


def present() -> list[str]:
    """The variants that lie in the package and that this CPU can run, from the most general to the fastest."""
    count = _RUNNABLE.get(torch.backends.cpu.get_cpu_capability(), 1)
    return [name for name in list(variants())[:count] if (LIBRARIES / file_name(name)).exists()]


def threads() -> int:
    """How many threads a kernel may use: as many as torch's operations, but 1 in a forked child.

    The threads of OpenMP do not survive a fork, and a child that waits for them waits forever.
    """
    return torch.get_num_threads() if os.getpid() == _PROCESS else 1


@lru_cache(maxsize=1)
def chosen() -> tuple[str | None, str]:
    """The variant to use and "", or None and the reason. It is found once in each process."""
    reason = (
        "no native library came with this installation, because there was no C++ compiler when it was built: install "
        "one, then install torch_boc again (in a checkout: `make native`)"
    )
    if not variants():
        return None, "there is no native library for this kind of computer"
    for name in reversed(present()):
        try:
            library(name)
        except RuntimeError as error:
            reason = str(error)
        else:
            return name, ""
    return None, reason


def _load(path: Path) -> ctypes.CDLL:
    """Load one library, reject it unless it was made of this code and has the same schema, and give it threads."""
    try:
        loaded = ctypes.CDLL(str(path))
        loaded.boc_sources.restype = loaded.boc_schema.restype = ctypes.c_char_p
    except (OSError, AttributeError) as error:
        raise RuntimeError(f"the native library {path.name} cannot be loaded: {error}") from error
    made_of, expected = loaded.boc_sources().decode(), digest()
    if expected and made_of != expected:
        raise RuntimeError(f"{path.name} is older than the C++ code next to it: run `make native`, then start again")
    reported = loaded.boc_schema().decode()
    for theirs, ours in zip(f"{reported}\n".split("\n"), f"{schema_text()}\n".split("\n"), strict=False):
        if theirs != ours:
            wrong = f"expected {ours!r}, got {theirs!r}"
            raise RuntimeError(f"{path.name} does not compute the numbers of core/schema.py: {wrong}")
    for name, types in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = types, ctypes.c_int32
    loaded.boc_use_threads.argtypes = [_POINTER] * len(_THREADS)
    if functions := thread_functions():
        loaded.boc_use_threads(*functions)
    return loaded


@lru_cache(maxsize=1)
def thread_functions() -> tuple[ctypes.c_void_p, ...]:
    """The addresses of `_THREADS` in the OpenMP that torch has loaded; () if there is none.

    Native kernels share its threads: a process must have one OpenMP only.
    """
    for path in (None, *_loaded_openmps()):
        try:
            home = ctypes.CDLL(path)
            return tuple(ctypes.cast(getattr(home, name), ctypes.c_void_p) for name in _THREADS)
        except (OSError, AttributeError):
            continue
    return ()


def _loaded_openmps() -> list[str]:
    """The libraries of this process whose names are those of an OpenMP."""
    lines = _MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines() if _MAPS.exists() else []
    paths = dict.fromkeys(line.split(maxsplit=5)[-1] for line in lines)
    return [path for path in paths if re.match(r"lib(gomp|omp|iomp5)\b", Path(path).name)]
