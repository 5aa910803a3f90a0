"""Loads the native library that fits this CPU, from the package's own folder and nowhere else."""

import ctypes
import os
from functools import lru_cache
from pathlib import Path

import torch

from .openmp import parallel_functions
from .variants import FOLDER, digest, file_name, variants

LIBRARIES = FOLDER / "lib"
# How many of the variants, in their order, the CPU can run, by the capability that torch gives. Any other name means 1.
_RUNNABLE = {"AVX2": 2, "AVX512": 3}


def library(variant: str | None = None) -> ctypes.CDLL:
    """The library of one variant, by default of the fastest that this CPU can run; RuntimeError if there is none."""
    name = variant or _chosen()[0]
    if name is None:
        raise RuntimeError(f"the native path is not available: {why_not()}")
    return _load(LIBRARIES / file_name(name))


def available() -> bool:
    """Whether there is a library that this CPU can run and this process can load."""
    return _chosen()[0] is not None


def variant() -> str | None:
    """The variant in use, or None."""
    return _chosen()[0]


def why_not() -> str:
    """Why there is no native path, and what to do about it; an empty text if there is one."""
    return _chosen()[1]


def present() -> list[str]:
    """The variants that lie in the package and that this CPU can run, from the most general to the fastest."""
    count = _RUNNABLE.get(torch.backends.cpu.get_cpu_capability(), 1)
    return [name for name in list(variants())[:count] if (LIBRARIES / file_name(name)).exists()]


def threads() -> int:
    """How many threads a kernel may use: as many as torch's operations, but 1 in a forked child.

    The threads of OpenMP do not survive a fork, and a child that waits for them waits for ever.
    """
    return 1 if _in_fork else torch.get_num_threads()


_in_fork = False


def _after_fork() -> None:
    global _in_fork
    _in_fork = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@lru_cache(maxsize=1)
def _chosen() -> tuple[str | None, str]:
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


@lru_cache
def _load(path: Path) -> ctypes.CDLL:
    """Load one library, refuse it if the C++ code beside it has changed since, and give it torch's threads."""
    try:
        loaded = ctypes.CDLL(str(path))
        loaded.boc_sources.restype = ctypes.c_char_p
    except (OSError, AttributeError) as error:
        raise RuntimeError(f"the native library {path.name} cannot be loaded: {error}") from error
    made_of, expected = loaded.boc_sources().decode(), digest()
    if expected and made_of != expected:
        raise RuntimeError(f"{path.name} is older than the C++ code beside it: run `make native`, then start again")
    if functions := parallel_functions():
        loaded.boc_use_threads(*functions)
    return loaded
