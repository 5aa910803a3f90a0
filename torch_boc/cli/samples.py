"""A file with a row for each sample: Parquet or CSV, which is whole or not there at all."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from .._optional import require_pyarrow
from ..data.atomic import check_file
from ..data.parquet import ParquetFile
from .output import csv_file

Columns = Mapping[str, Tensor | list[str]]


def check_output(out: Path, sources: Iterable[Path]) -> None:
    """Raise if no table can be written to `out`, or if `out` is one of the inputs."""
    if out.suffix.lower() not in (".parquet", ".csv"):
        raise ValueError(f"{out}: expected an output that ends in .parquet or .csv, got {out.suffix or 'no ending'!r}")
    check_file(out)
    if out.exists() and any(source.exists() and out.samefile(source) for source in sources):
        raise ValueError(f"{out}: expected an output that is not the input, got the same file; choose another path")


@contextmanager
def sample_file(out: Path | None) -> Iterator[Callable[[Columns], None]]:
    """A function that appends columns to the output file; it does nothing if `out` is None."""
    if out is None:
        yield lambda columns: None
    elif out.suffix.lower() == ".csv":
        with csv_file(out) as write:
            yield lambda columns: write(_arrow(columns))
    else:
        with ParquetFile(out) as file:
            yield lambda columns: file.write_table(_arrow(columns))


def _arrow(columns: Columns) -> Any:
    return require_pyarrow().table({name: x.numpy() if isinstance(x, Tensor) else x for name, x in columns.items()})
