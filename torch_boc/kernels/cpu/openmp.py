"""Finds the OpenMP that torch has loaded, so that native kernels share its threads and load no second OpenMP."""

import ctypes
import re
from functools import lru_cache
from pathlib import Path

NAMES = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_MAPS = Path("/proc/self/maps")


@lru_cache(maxsize=1)
def parallel_functions() -> tuple[ctypes.c_void_p, ...]:
    """The addresses of the functions in `NAMES`, all from one OpenMP; an empty tuple if there is none."""
    for path in (None, *_loaded()):
        try:
            home = ctypes.CDLL(path)
            return tuple(ctypes.cast(getattr(home, name), ctypes.c_void_p) for name in NAMES)
        except (OSError, AttributeError):
            continue
    return ()


def _loaded() -> list[str]:
    """The libraries of this process whose names are those of an OpenMP."""
    lines = _MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines() if _MAPS.exists() else []
    paths = dict.fromkeys(line.split(maxsplit=5)[-1] for line in lines)
    return [path for path in paths if re.match(r"lib(gomp|omp|iomp5)\b", Path(path).name)]


class _Found(ctypes.Structure):
    """`Dl_info` of dlfcn.h."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def openmp() -> str | None:
    """The file of the OpenMP whose threads the native kernels use."""
    functions, found = parallel_functions(), _Found()
    if not functions or not ctypes.CDLL(None).dladdr(functions[0], ctypes.byref(found)):
        return None
    return bytes(found.file).decode(errors="replace")
