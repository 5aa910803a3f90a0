"""Logits from files, some rows at a time, in memory that does not grow with the file."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..core.blocks import block_elements
from . import files
from .array_streams import NpySource, NpzSource, SafetensorsSource, Source, WholeSource
from .atomic import printable
from .files import check_number, known_suffix, reading
from .inspection import Inspection, LogitBlock, look
from .selection import check_class_names
from .sheet_streams import CsvSource, ParquetSource

# The readers whose formats can be read in parts. All other files are read as a whole.
STREAMED: Mapping[str, Callable[..., Source]] = {
    ".npz": NpzSource,
    ".npy": NpySource,
    ".safetensors": SafetensorsSource,
    ".parquet": ParquetSource,
    ".csv": CsvSource,
}
# The most logits of a block, for machines with so many cores that a block of `core.blocks` is large.
MOST_ELEMENTS = 2**22


class LogitStream:
    """The logits of a file, as an iterable over blocks of rows. `stream_logits` makes it.

    The rows of all blocks together are those of `read_logits`, and so are errors and warnings. Those that tell how many
    rows are bad, or need all rows to be certain, come after the last block. A wrong number of names of classes is an
    error before the first. From the first bad row on there are no further blocks, and what was computed until then
    should be thrown away.

    Attributes:
        name: the name of the set.
        num_classes: the number of classes, C.
        rows: the number of rows, N; None for a CSV file that was not read to its end.
        from_probabilities: whether the logits are logarithms of probabilities.
    """

    def __init__(self, path: Path, name: str, opened: Callable[[], Source], how: Mapping[str, Any], rows: int | None):
        self.name, self.from_probabilities = name, bool(how["from_probabilities"])
        self._path, self._open, self._how = path, opened, how
        with reading(path), opened() as source:
            look_at = look(source, **how)
            self.num_classes, self.rows = look_at.num_classes, look_at.total
            check_number(how["classes"], self.num_classes)
        size = min(block_elements(torch.device("cpu")), MOST_ELEMENTS)
        self._block = max(1, size // self.num_classes) if rows is None else rows

    def __iter__(self) -> Iterator[LogitBlock]:
        with reading(self._path), self._open() as source:
            inspection = look(source, **self._how)
            yield from inspection.blocks(source, self._block)
            source.finish()
            self._finish(inspection, source)
            self.rows = inspection.rows

    def _finish(self, inspection: Inspection, source: Source) -> None:
        note = inspection.finish(source.headers(), self.name)
        if note:
            warnings.warn(f"{printable(str(self._path))}: {printable(note)}", stacklevel=4)


def stream_logits(
    path: str | os.PathLike[str],
    name: str | None = None,
    *,
    rows: int | None = None,
    from_probabilities: bool = False,
    classes: Sequence[str] | None = None,
) -> LogitStream:
    r"""The logits in a file, some rows at a time.

    Args:
        path: a file as for `read_logits`. `.npy`, `.npz`, `.safetensors`, `.parquet` and `.csv` are read in parts, so
            that memory does not grow with the file. `.pt` and `.pth` are read as a whole, and so is a compressed array
            of an `.npz` file in the order of Fortran.
        name: see `read_logits`.
        rows: the number of rows of a block; by default as many as fit into a few megabytes.
        from_probabilities: see `read_logits`.
        classes: see `read_logits`.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("logit_0,logit_1,target\n2,0,0\n1,3,1\n0,4,1\n")
    >>> [(block.start, block.target.tolist()) for block in stream_logits(path, rows=2)]
    [(0, [0, 1]), (2, [1])]
    """
    if rows is not None and rows < 1:
        raise ValueError(f"expected at least 1 row in a block, got {rows}")
    path = Path(path)
    name = printable(path.stem if name is None else name)
    suffix = known_suffix(path)
    with reading(path):
        named = None if classes is None else check_class_names(classes)
        opened = _opener(path, suffix, named)
    how = {"from_probabilities": from_probabilities, "classes": named}
    return LogitStream(path, name, opened, how, rows)


def _opener(path: Path, suffix: str, classes: Sequence[str] | None) -> Callable[[], Source]:
    """Opens the file. One that is read as a whole is read here, once."""
    reader = files.READERS[suffix]
    options = (classes,) if reader in files.SHEETS else ()
    if suffix in STREAMED:
        return lambda: STREAMED[suffix](path, *options)
    content = reader(path, *options)
    return lambda: WholeSource(content)
