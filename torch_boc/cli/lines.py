"""Samples from standard input, as they come: one sample in each line."""

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data.atomic import printable
from ..data.probabilities import logarithms, refuse_probabilities

# So many bytes are taken at once, if they are there.
CHUNK = 2**16
SHOWN = 40
WANTED = "numbers with commas between them, or an array of JSON"


class Lines(NamedTuple):
    """Some samples.

    Attributes:
        logits: (N, C) in float64.
        error: what is wrong with the line after them, or None.
    """

    logits: Tensor
    error: ValueError | None = None


def read_lines(stream: Any, classes: int, *, probabilities: bool = False) -> Iterator[Lines]:
    """The samples of a binary stream. It waits only if there is no whole line; the last line may have no end.

    Args:
        stream: a buffered binary stream.
        classes: how many numbers a line must have.
        probabilities: whether the lines hold probabilities, whose logarithm is taken.
    """
    number, rest, first = 0, b"", True
    while True:
        chunk = stream.read1(CHUNK)
        *whole, rest = (rest + chunk).split(b"\n")
        if not chunk and rest:
            whole, rest = [*whole, rest], b""
        found = _parse(whole, number, classes, probabilities)
        number += len(whole)
        if first and len(found.logits) and not probabilities:
            first, found = False, _looked_at(found)
        if len(found.logits) or found.error:
            yield found
        if not chunk or found.error:
            return


def parse_line(text: str) -> list[float]:
    """The numbers in a line.

    >>> parse_line("1.5, -2, nan"), parse_line("[0.5, 1e-3]")
    ([1.5, -2.0, nan], [0.5, 0.001])
    """
    try:
        values = json.loads(text) if text.startswith("[") else [float(x) for x in text.split(",")]
        if all(isinstance(x, int | float) and not isinstance(x, bool) for x in values):
            return [float(x) for x in values]
    except (ValueError, OverflowError, RecursionError):
        pass
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    raise ValueError(f"expected {WANTED}, got {printable(shown)!r}; a file with a header can be given as PATH")


def _parse(lines: list[bytes], before: int, classes: int, probabilities: bool) -> Lines:
    """The samples up to the first bad line, and what is wrong with that line. Empty lines are left out."""
    rows: list[Tensor] = []
    error = None
    for number, line in enumerate(lines, start=before + 1):
        text = line.decode("utf-8-sig" if number == 1 else "utf-8", "replace").strip()
        if not text:
            continue
        try:
            rows.append(_row(parse_line(text), classes, probabilities))
        except ValueError as problem:
            error = ValueError(f"standard input, line {number:,}: {problem}")
            break
    return Lines(torch.stack(rows) if rows else torch.empty(0, classes, dtype=torch.float64), error)


def _row(values: list[float], classes: int, probabilities: bool) -> Tensor:
    if len(values) != classes:
        raise ValueError(f"expected {classes} numbers, one for each class, got {len(values)}")
    row = torch.tensor(values, dtype=torch.float64)
    if not probabilities or any(math.isnan(x) for x in values):
        return row
    return logarithms(row.unsqueeze(0)).squeeze(0)


def _looked_at(lines: Lines) -> Lines:
    """The lines, or an error if they are probabilities."""
    try:
        refuse_probabilities(lines.logits)
    except ValueError as problem:
        return Lines(lines.logits[:0], ValueError(f"standard input: {problem}"))
    return lines
