"""Tables of samples in Parquet files that appear whole or not at all."""

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import torch
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
    were cut into batches; a thread writes a group while the next is gathered. A path at which no file can be written is
    refused at once.

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
        self._waiting: list[Any] = []  # tables, and lists of batches of one kind, which become a table together
        self._rest: list[Any] = []  # the table of the rows that filled no row group
        self._kind: object = None
        self._thread, self._writing = ThreadPoolExecutor(1, "torch_boc-parquet"), Future[None]()
        self._writing.set_result(None)

    def write(self, columns: Mapping[str, Column]) -> None:
        """Append one batch of tensors and lists of strings; the first batch sets the columns and their types."""
        rows, kind = len(next(iter(columns.values()), ())), list[object]()
        for name, x in columns.items():
            plain = isinstance(x, Tensor) and x.device.type == "cpu" and len(x) == rows
            kind.append((name, x.dtype, x.shape[1:]) if plain else None)  # type: ignore[union-attr]
        if None in kind or kind != self._kind:
            self.write_table(require_pyarrow().table({name: as_arrow(x) for name, x in columns.items()}))
            self._kind = kind
            return
        if not (self._waiting and isinstance(self._waiting[-1], list)):
            self._waiting.append([])
        self._waiting[-1].append(columns)
        self._count(rows)

    def write_table(self, table: Any) -> None:
        """Append a pyarrow table."""
        table = table.replace_schema_metadata(self._metadata)
        if self._writer is None:
            self._unfinished = UnfinishedFile(self.path)
            # Few real numbers come twice: a dictionary of them takes time and saves nothing.
            coded = [x.name for x in table.schema if not require_pyarrow().types.is_floating(x.type)]
            how = {"compression": "zstd", "write_page_checksum": True, "use_dictionary": coded}
            file = self._unfinished.file  # Arrow would refuse a path that is not UTF-8
            self._writer = require_pyarrow().parquet.ParquetWriter(file, table.schema, **how)
        if table.schema != self._writer.schema:
            schemas = (self._writer.schema, table.schema)
            expected, got = (str(schema.remove_metadata()).replace("\n", ", ") for schema in schemas)
            raise ValueError(f"expected columns {expected}, got {got}")
        self._waiting.append(table)
        self._kind = None
        self._count(table.num_rows)

    def _count(self, rows: int) -> None:
        """Count rows, and write those that fill whole row groups."""
        self.rows += rows
        if self.rows - self._written >= GROUP_ROWS:
            self._write_groups()

    def _write_groups(self, *, last: bool = False) -> None:
        """Let the thread write the rows that fill whole row groups, or all rows that wait."""
        waiting, self._waiting = self._waiting, []
        self._written = self.rows if last else self.rows // GROUP_ROWS * GROUP_ROWS
        self._writing.result()  # one group at a time; an error of the last one is raised here
        self._writing = self._thread.submit(self._append, self._writer, waiting, last)

    def _append(self, writer: Any, waiting: list[Any], last: bool) -> None:
        """The work of the thread."""
        tables = self._rest
        for part in waiting:
            if isinstance(part, list):
                columns = {name: as_arrow(torch.cat([x[name] for x in part])) for name in part[0]}
                part = require_pyarrow().table(columns).replace_schema_metadata(self._metadata)
            tables.append(part)
        table = require_pyarrow().concat_tables(tables).combine_chunks()
        ready = table.num_rows if last else table.num_rows // GROUP_ROWS * GROUP_ROWS
        writer.write_table(table.slice(0, ready), row_group_size=GROUP_ROWS)
        self._rest = [table.slice(ready)]

    def close(self) -> None:
        """Finish the file and give it its name."""
        if self._writer is None or self._unfinished is None:
            return
        try:
            self._write_groups(last=True)
            self._writing.result()
            self._thread.shutdown()
            self._writer.close()
            self._unfinished.commit(self.path)
        except BaseException:
            self.discard()
            raise
        self._writer = None

    def discard(self) -> None:
        """Give up: delete the temporary file. An older file at `path` stays as it is."""
        writer, self._writer, self._waiting = self._writer, None, []
        self._thread.shutdown()
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
