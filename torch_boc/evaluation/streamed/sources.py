"""Sets of any size: the rows of Parquet files in a folder, under a pattern or in a bucket, some at a time."""

import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ..._optional import require_pyarrow
from ...data.formats import ContentError
from ...data.sheet_streams import AHEAD_BYTES, COLUMN_AHEAD_BYTES
from ...inference.complete import check_complete
from ...ray.runs import Run
from ...ray.runs import check_complete as ray_complete
from ...storage.files import printable
from .blocks import BLOCK_ELEMENTS, LEAST_BLOCK, Reader, has_columns
from .progress import Telling
from .state import Plan, SetState

ENDING = ".parquet"
WILD = "*?["
# Rows that become Arrow tables at once, in cells.
READ_CELLS = 4 * BLOCK_ELEMENTS
Paths = str | os.PathLike[str]


class TableFile(NamedTuple):
    """A Parquet file in a file system of Arrow, and the number of its rows."""

    system: Any
    path: str
    rows: int


class Tables:
    """The Parquet files of one set, in the order of their names.

    Args:
        source: a file, a folder, a pattern such as "out/part-*.parquet", a URI such as "s3://bucket/folder", or a list
            of these.
        name: the name of the set.
    """

    def __init__(self, source: Any, name: str) -> None:
        self.name = name
        sources = [source] if isinstance(source, str | os.PathLike) else list(source)
        if not all(isinstance(x, str | os.PathLike) for x in sources):
            got = ", ".join(sorted({type(x).__name__ for x in sources}))
            raise TypeError(
                f"{name}: expected paths of Parquet files, or a Ray data set, got {got}; use evaluate for it"
            )
        found = [file for x in sources for file in _find(x)]
        path, times = Counter(path for _, path in found).most_common(1)[0] if found else ("", 0)
        if times > 1:
            raise ValueError(f"{name}: expected each file once, got {printable(path)} twice")
        for x in sources:
            _warn_of_missing(os.fspath(x))
        if not found:
            raise FileNotFoundError(
                f"{name}: expected Parquet files, got none in {printable(', '.join(map(str, sources)))}"
            )
        self.files = [TableFile(system, path, _count(system, path)) for system, path in found]
        self.rows = sum(file.rows for file in self.files)
        if self.rows == 0:
            raise ValueError(f"{name}: expected at least one row, got {len(self.files)} files without rows")

    def from_columns(self) -> bool:
        """Whether the first table has columns instead of logits."""
        file = self.files[0]
        arrow = require_pyarrow()
        with (
            _reading(file.path),
            file.system.open_input_file(file.path) as stream,
            arrow.parquet.ParquetFile(stream) as parquet,
        ):
            return has_columns(parquet.schema_arrow)

    def collect(self, plan: Plan, reader: Reader, tell: Telling) -> SetState:
        """The sums and counts of all rows, in memory that does not grow with the rows."""
        state, first = SetState(plan), 0
        for file in self.files:
            start = first
            with _reading(file.path):
                for table in _tables(file, reader):
                    for block in reader.blocks(table, first, first - start):
                        state.add(block)
                        reader = reader.after(block.evidence)
                    first += table.num_rows
                    tell.rows(self.name, table.num_rows)
        return state


def needs_parts(source: Paths) -> bool:
    """Whether a source is read in parts: a folder, a pattern, a URI, or a Parquet file of columns without logits."""
    text = os.fspath(source)
    path = Path(text)
    if "://" in text or path.is_dir() or (any(x in path.name for x in WILD) and not path.exists()):
        return True
    if path.suffix.lower() != ENDING or not path.is_file():
        return False
    try:
        with path.open("rb") as stream, require_pyarrow().parquet.ParquetFile(stream) as file:
            return has_columns(file.schema_arrow)
    except (ImportError, OSError, ValueError):  # whoever reads the file says what is wrong with it
        return False


def _warn_of_missing(source: str) -> None:
    """Warn if a predictor has not finished the rows of this folder, as its manifest beside the folder tells."""
    folder = Path(source).expanduser().absolute()
    if "://" in source or not Path(f"{folder}.run").is_dir():
        return
    try:
        (ray_complete if Run(folder).manifest() is not None else check_complete)(folder)
    except ValueError as error:
        warnings.warn(f"the report is on a part of the samples: {error}", stacklevel=5)


def _tables(file: TableFile, reader: Reader) -> Iterator[Any]:
    """The rows of a file, in Arrow tables of bounded size."""
    arrow = require_pyarrow()
    with file.system.open_input_file(file.path) as stream, arrow.parquet.ParquetFile(stream) as parquet:
        wanted, metadata = reader.columns(parquet.schema_arrow), parquet.metadata
    ahead = max(COLUMN_AHEAD_BYTES, AHEAD_BYTES // max(1, len(wanted)))
    with file.system.open_input_file(file.path) as stream:
        # Otherwise Arrow would read all of a row group at once, which may be all of the file.
        parquet = arrow.parquet.ParquetFile(stream, buffer_size=ahead, pre_buffer=False, metadata=metadata)
        rows = max(LEAST_BLOCK, READ_CELLS // max(len(wanted), _width(parquet, wanted)))
        for batch in parquet.iter_batches(batch_size=rows, columns=wanted):
            yield arrow.Table.from_batches([batch])


def _width(parquet: Any, wanted: Sequence[str]) -> int:
    """About how many numbers a row has, where a column may hold lists."""
    rows = max(1, parquet.metadata.num_rows)
    names = [parquet.metadata.schema.column(i) for i in range(parquet.metadata.num_columns)]
    kept = [i for i, column in enumerate(names) if column.path.split(".")[0] in wanted]
    groups = [parquet.metadata.row_group(i) for i in range(parquet.metadata.num_row_groups)]
    return int(sum(group.column(i).num_values for group in groups for i in kept) // rows)


def _find(source: Paths) -> list[tuple[Any, str]]:
    """The Parquet files of a source, in the order of their names."""
    fs, text = require_pyarrow().fs, os.fspath(source)
    if "://" in text:
        place, question, query = text.partition("?")  # of the options of a file system, such as endpoint_override
        fixed = _fixed(place)
        system, base = fs.FileSystem.from_uri(fixed + question + query)
        pattern = base + place[len(fixed) :]
    else:
        system, pattern = fs.LocalFileSystem(), Path(text).expanduser().absolute().as_posix()
        base = pattern if Path(pattern).exists() else _fixed(pattern)
    info = system.get_file_info(base)
    if info.type == fs.FileType.File:
        return [(system, base)]
    if info.type != fs.FileType.Directory:
        raise FileNotFoundError(f"{printable(text)}: no such file or folder")
    files = [x.path for x in system.get_file_info(fs.FileSelector(base, recursive=True)) if x.is_file]
    wanted = pattern if pattern != base else None
    return [(system, path) for path in sorted(files) if _is_wanted(path, base, wanted)]


def _fixed(pattern: str) -> str:
    """The folder of a pattern that has no wildcards; without any it is the pattern itself."""
    first = re.search(r"[*?\[]", pattern)
    return pattern[: first.start()].rpartition("/")[0] if first else pattern


def _is_wanted(path: str, base: str, pattern: str | None) -> bool:
    """Whether a file is one of the set. Hidden files and folders are left out, as engines do that write them."""
    inside = PurePosixPath(path).relative_to(PurePosixPath(base)).parts
    hidden = any(part.startswith((".", "_")) for part in inside)
    if pattern is None:
        return path.endswith(ENDING) and not hidden
    return fnmatchcase(path, pattern) and path.count("/") == pattern.count("/") and not hidden


def _count(system: Any, path: str) -> int:
    arrow = require_pyarrow()
    with _reading(path), system.open_input_file(path) as stream, arrow.parquet.ParquetFile(stream) as file:
        return int(file.metadata.num_rows)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turns what is wrong with a file into an error of one line that begins with its path."""
    said = printable(path)
    try:
        yield
    except ContentError as error:
        raise ValueError(f"{said}: {error}") from None
    except require_pyarrow().ArrowInvalid as error:
        reason = printable(" ".join(str(error).split()))
        raise ValueError(f"{said}: expected a whole Parquet file, got one that cannot be read: {reason}") from error
