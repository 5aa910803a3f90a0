"""The header of a CSV file, and the line in which an error is."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .finding import TARGET_NAMES
from .formats import ContentError
from .selection import NAMING, folded

# Other separators than the comma, which some programs write into files that they call CSV.
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


@contextmanager
def _rows(path: Path) -> Iterator[Any]:
    """The rows of a CSV file, read by Python's own reader, which is slow but knows the line of an error."""
    file: IO[str]
    limit = csv.field_size_limit(2**31 - 1)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield csv.reader(file)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ContentError(
            f"expected text in UTF-8, got the byte 0x{byte:02x}; save it as CSV in UTF-8, without compression"
        ) from None
    finally:
        csv.field_size_limit(limit)


def read_header(path: Path) -> list[str]:
    """The names of the columns; an error if they are not separated by commas."""
    with _rows(path) as rows:
        names: list[str] = next(rows, [])
    found = next((word for mark, word in SEPARATORS.items() if len(names) == 1 and mark in names[0]), None)
    if found:
        start = names[0] if len(names[0]) <= 40 else f"{names[0][:40]}..."
        raise ContentError(f"expected commas between the columns, got {found}: {start!r}; save it with commas")
    return names


def find_bad_line(path: Path, numbers: set[str], missing: list[str]) -> str | None:
    """What is wrong with the first bad line: it has another length than the header, or text instead of a number.

    Args:
        path: the CSV file.
        numbers: the names of the columns that must hold numbers.
        missing: the cells that stand for a missing number.

    Returns:
        A message; None if no line is bad.
    """
    with _rows(path) as rows:
        names = next(rows)
        for cells in rows:
            if cells and len(cells) != len(names):
                return f"expected {len(names)} cells in line {rows.line_num}, as in the header, got {len(cells)}"
            for name, cell in zip(names, cells, strict=False):
                if name in numbers and cell not in missing and not _is_float(cell):
                    remedy = f"; {NAMING}" if folded(name) in TARGET_NAMES else ""
                    return f"expected a number in line {rows.line_num}, column {name.strip()!r}, got {cell!r}{remedy}"
    return None


def _is_float(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
