"""Tables of samples in Parquet files that appear whole or not at all."""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from torch import Tensor

from .._optional import require_pyarrow
from .atomic import UnfinishedFile, check_parquet

GROUP_ROWS = 2**16
Column = Tensor | list[str]  # a column of a table


def as_arrow(column: Any) -> Any:
    """A tensor, an array of NumPy or a list of strings as an array of Arrow; lists from two axes."""
    arrow = require_pyarrow()
    if isinstance(column, list):
        return arrow.array(column, arrow.string())
    values = column.detach().cpu().numpy() if isinstance(column, Tensor) else column
    if getattr(values, "ndim", 1) == 1:
        return arrow.array(values)
    ends = arrow.array(range(0, values.size + 1, values.shape[1]), arrow.int32())
    return arrow.ListArray.from_arrays(ends, arrow.array(values.reshape(-1)))


class ParquetFile:
    """Writes batches of columns to a temporary file, which is renamed to `path` when it is closed without an error.

    Batches of any size are gathered into row groups of `GROUP_ROWS`, so that the file does not depend on how the rows
    were cut into batches. A path at which no file can be written is refused at once.

    Args:
        path: the file.
        metadata: texts for the file's metadata.

    Attributes:
        path: where the file will be. It may be changed until the file is closed, to a folder of the same file system.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "samples.parquet"
    >>> with ParquetFile(path) as file:
    ...     file.write({"gap": torch.tensor([0.1, 0.2])})
    >>> path.exists(), file.rows
    (True, 2)
    """

    def __init__(self, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
        self.path = check_parquet(path)
        self.rows = self._written = 0
        self._metadata = dict(metadata or {})
        self._writer: Any = None
        self._unfinished: UnfinishedFile | None = None
        self._waiting: list[Any] = []

    def write(self, columns: Mapping[str, Column]) -> None:
        """Append one batch of tensors and lists of strings; the first batch sets the columns and their types."""
        self.write_table(require_pyarrow().table({name: as_arrow(x) for name, x in columns.items()}))

    def write_table(self, table: Any) -> None:
        """Append a pyarrow table."""
        table = table.replace_schema_metadata(self._metadata)
        if self._writer is None:
            self._unfinished = UnfinishedFile(self.path)
            how = {"compression": "zstd", "write_page_checksum": True}
            file = self._unfinished.file  # Arrow would refuse a path that is not UTF-8
            self._writer = require_pyarrow().parquet.ParquetWriter(file, table.schema, **how)
        if table.schema != self._writer.schema:
            schemas = (self._writer.schema, table.schema)
            expected, got = (str(schema.remove_metadata()).replace("\n", ", ") for schema in schemas)
            raise ValueError(f"expected columns {expected}, got {got}")
        self._waiting.append(table)
        self.rows += table.num_rows
        if self.rows - self._written >= GROUP_ROWS:
            self._write_groups()

    def _write_groups(self, *, last: bool = False) -> None:
        """Write the rows that fill whole row groups, or all rows that wait."""
        table = require_pyarrow().concat_tables(self._waiting).combine_chunks()
        ready = table.num_rows if last else table.num_rows // GROUP_ROWS * GROUP_ROWS
        self._writer.write_table(table.slice(0, ready), row_group_size=GROUP_ROWS)
        self._waiting = [table.slice(ready)]
        self._written += ready

    def close(self) -> None:
        """Finish the file and give it its name."""
        if self._writer is None or self._unfinished is None:
            return
        try:
            self._write_groups(last=True)
            self._writer.close()
            self._unfinished.commit(self.path)
        except BaseException:
            self.discard()
            raise
        self._writer = None

    def discard(self) -> None:
        """Give up: delete the temporary file. An older file at `path` stays as it is."""
        writer, self._writer, self._waiting = self._writer, None, []
        if writer is not None and self._unfinished is not None:
            with suppress(Exception):  # the disk may be full
                writer.close()
            self._unfinished.discard()

    def __enter__(self) -> "ParquetFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()
