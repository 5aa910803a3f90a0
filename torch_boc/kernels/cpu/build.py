"""The native libraries, and how each is built. The build reads this file too, so it uses only the standard library.

One library is built for each capability of the CPU that torch knows: one wheel serves all machines of its
architecture.
"""

import hashlib
import platform
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
# No -ffast-math: NaN and infinity must be kept, and a changed order of summation would be less accurate.
# No -fopenmp: it would link an OpenMP, and torch has one already.
FLAGS = ("-std=c++17", "-O3", "-shared", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden",
         "-fopenmp-simd", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")  # fmt: skip
# No dependence on a runtime that the code does not call: the library must load wherever Python runs.
_LINK = {"linux": ("-Wl,--as-needed", "-static-libgcc")}
_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_X86 = {"baseline": (), "avx2": _AVX2, "avx512": ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", *_AVX2)}
_ARM: dict[str, tuple[str, ...]] = {"neon": ()}


def variants() -> dict[str, tuple[str, ...]]:
    """The variants of this machine's architecture and the flags of each, from the most general to the fastest."""
    if sys.platform == "win32" or sys.maxsize < 2**32:
        return {}
    machine = platform.machine().lower()
    return _X86 if machine in ("x86_64", "amd64") else _ARM if machine in ("arm64", "aarch64") else {}


def flags() -> tuple[str, ...]:
    """The flags that all variants have in common."""
    return (*FLAGS, *_LINK.get(sys.platform, ()))


def file_name(variant: str) -> str:
    """The name of a library; its place is the folder `lib` next to this file."""
    return f"boc-{variant}.{'dylib' if sys.platform == 'darwin' else 'so'}"


def sources(folder: Path = FOLDER) -> list[Path]:
    """The C++ files. A wheel has none."""
    return sorted(path for path in folder.iterdir() if path.suffix in (".cpp", ".h"))


def digest(folder: Path = FOLDER) -> str:
    """A hash of the C++ files and the flags, which every library carries; an empty text where there are no files."""
    texts = [text for path in sources(folder) for text in (path.name, path.read_text(encoding="utf-8"))]
    whole = "\0".join([*texts, repr((FLAGS, _LINK, _X86, _ARM))])
    return hashlib.sha256(whole.encode()).hexdigest()[:16] if texts else ""
