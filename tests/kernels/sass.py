"""Counts the instructions that a warp executes at least, in the code that the assembler made for a GPU."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple


class Instructions(NamedTuple):
    """Of one warp: outside of loops, and in one turn of each loop in their order, on the shortest way in each case."""

    outside: int
    loops: list[int]


def count(cubin: bytes, path: Path) -> Instructions:
    """The instructions in the code of one kernel; `path` is a file to write it to."""
    from triton.backends import nvidia

    path.write_bytes(cubin)
    tool = Path(nvidia.__file__).parent / "bin" / "nvdisasm"
    text = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True).stdout
    lines, labels = _parse(text)
    jumps = [_jump(line, labels) for line in lines]
    back = [(jump, i) for i, jump in enumerate(jumps) if jump is not None and jump < i]
    first_end = next(i for i, line in enumerate(lines) if re.match(r"EXIT\b", line))
    loops = [_shortest(lines, jumps, a, b) for a, b in sorted(back) if b < first_end and b > a]
    return Instructions(_shortest(lines, jumps, 0, None), loops)


def _parse(text: str) -> tuple[list[str], dict[str, int]]:
    lines: list[str] = []
    labels = {}
    for line in text.splitlines():
        if found := re.match(r"(\.L_[\w.]+):", line):
            labels[found.group(1)] = len(lines)
        elif found := re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line):
            lines.append(found.group(1))
    return lines, labels


def _jump(line: str, labels: dict[str, int]) -> int | None:
    found = re.search(r"\bBRA\b.*`\((\.L_[\w.]+)\)", line)
    return labels[found.group(1)] if found else None


def _shortest(lines: list[str], jumps: list[int | None], begin: int, end: int | None) -> int:
    """The fewest instructions from `begin` to `end`, or to the end of the program; jumps back are not taken."""
    far = 10**9
    last = len(lines) - 1 if end is None else end
    left = [far] * (last + 2)
    for i in range(last, -1, -1):
        line, jump = lines[i], jumps[i]
        if i == end or (end is None and re.match(r"EXIT\b", line)):
            left[i] = 1
            continue
        ways = [left[jump]] if jump is not None and i < jump <= last else []
        if not re.match(r"(BRA|EXIT|RET)\b(?!\.DIV)", line):
            ways.append(left[i + 1])
        left[i] = 1 + min(ways, default=far)
    return left[begin]
