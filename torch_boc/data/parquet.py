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
# The key of the number of classes in the metadata of a file without logits.
CLASSES_KEY = "torch_boc.num_classes"
Column = Tensor | list[str]  # a column of a table


def stored_classes(metadata: Mapping[bytes, bytes] | None) -> int | None:
    """The number of classes in the metadata of a Parquet file; None if it is not there."""
    number = (metadata or {}).get(CLASSES_KEY.encode())
    return None if number is None else int(number)


def as_arrow(column: Any) -> Any:
    """A tensor, an array of NumPy or a list of strings as an array of Arrow; lists from two axes."""
    arrow = require_pyarrow()
    if isinstance(column, arrow.ChunkedArray):
        return column
    if isinstance(column, list):
        return arrow.array(column, arrow.string())
    values = column.detach().cpu().numpy() if isinstance(column, Tensor) else column
    if getattr(values, "ndim", 1) == 1:
        return arrow.array(values)
    ends = arrow.array(range(0, values.size + 1, values.shape[1]), arrow.int32())
    return arrow.ListArray.from_arrays(ends, arrow.array(values.reshape(-1)))


class ParquetFile:
    """Writes batches of columns to a temporary file, which is renamed to `path` when it is closed without an error.

    Batches of any size become row groups of `GROUP_ROWS`, so the file does not depend on how the rows were batched. A
    thread writes a group while the next one is collected. A path at which no file can be written is refused at once.

    Args:
        path: the file.
        metadata: texts for the file's metadata.

    Attributes:
        path: where the file will be. It may be changed until the file is closed, to a folder of the same file system.
        rows: how many rows have been written.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "samples.parquet"
    >>> with ParquetFile(path) as file:
    ...     file.write({"gap": torch.tensor([0.1, 0.2])})
    >>> path.exists(), file.rows
    (True, 2)
    """

    def __init__(self, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
        self.path = check_parquet(path)
        self.rows = self._grouped = 0
        self._metadata, self._kinds = dict(metadata or {}), dict[str, Any]()
        self._writer: Any = None
        self._unfinished: UnfinishedFile | None = None
        self._batches: list[Mapping[str, Any]] = []
        self._rest: list[Any] = []  # the table of the rows that filled no row group
        self._thread, self._writing = ThreadPoolExecutor(1, "torch_boc-parquet"), Future[None]()
        self._writing.set_result(None)

    def write(self, columns: Mapping[str, Any], num_classes: int | None = None) -> None:
        """Append one batch of tensors, lists of strings or columns of Arrow; the first batch sets names and types.

        Args:
            columns: the columns by name.
            num_classes: for the metadata, if the first batch names it.
        """
        kinds = {name: kind_of(x) for name, x in columns.items()}
        if self._unfinished is None:
            require_pyarrow()
            self._unfinished, self._kinds = UnfinishedFile(self.path), kinds
            self._metadata |= {} if num_classes is None else {CLASSES_KEY: str(num_classes)}
        if kinds != self._kinds:
            name = next(name for name in {**self._kinds, **kinds} if self._kinds.get(name) != kinds.get(name))
            expected, got = (x.get(name, "no such column") for x in (self._kinds, kinds))
            raise ValueError(f"expected column {name!r} as in the first batch, {expected}, got {got}")
        self._batches.append(columns)
        self.rows += len(next(iter(columns.values()), ()))
        if self.rows - self._grouped >= GROUP_ROWS:
            self._write_groups()

    def _write_groups(self, *, last: bool = False) -> None:
        """Let the thread write the rows that fill whole row groups, or all rows."""
        batches, self._batches = self._batches, []
        self._grouped = self.rows // GROUP_ROWS * GROUP_ROWS
        self._writing.result()  # one group at a time; an error of the last one is raised here
        self._writing = self._thread.submit(self._append, batches, last)

    def _append(self, batches: list[Mapping[str, Any]], last: bool) -> None:
        """The work of the thread."""
        arrow, tables = require_pyarrow(), self._rest
        if batches:
            columns = {name: as_arrow(joined([x[name] for x in batches])) for name in self._kinds}
            tables = [*tables, arrow.table(columns)]
        table = arrow.concat_tables(tables).combine_chunks().replace_schema_metadata(self._metadata)
        if self._writer is None and self._unfinished is not None:
            # Few real numbers come twice: a dictionary of them takes time and saves nothing.
            coded = [x.name for x in table.schema if not arrow.types.is_floating(x.type)]
            options = {"compression": "zstd", "write_page_checksum": True, "use_dictionary": coded}
            file = self._unfinished.file  # Arrow would refuse a path that is not UTF-8
            self._writer = arrow.parquet.ParquetWriter(file, table.schema, **options)
        ready = table.num_rows if last else table.num_rows // GROUP_ROWS * GROUP_ROWS
        self._writer.write_table(table.slice(0, ready), row_group_size=GROUP_ROWS)
        self._rest = [table.slice(ready)]

    def close(self) -> None:
        """Finish the file and give it its name."""
        if self._unfinished is None:
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
        self._unfinished = None

    def discard(self) -> None:
        """Give up: delete the temporary file. An older file at `path` stays unchanged."""
        unfinished, self._unfinished, self._batches = self._unfinished, None, []
        self._thread.shutdown()
        if unfinished is not None:
            with suppress(Exception):  # the disk may be full
                self._writer.close()
            unfinished.discard()

    def __enter__(self) -> "ParquetFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


def kind_of(column: Any) -> Any:
    """What must be equal in all batches."""
    if isinstance(column, Tensor):
        return column.dtype if column.ndim == 1 else (column.dtype, *column.shape[1:])
    return getattr(column, "type", "text")


def joined(parts: list[Any]) -> Any:
    """The rows of columns of one kind, one after the other."""
    if isinstance(parts[0], Tensor):
        return parts[0] if len(parts) == 1 else torch.cat(parts)
    if isinstance(parts[0], list):
        return [x for part in parts for x in part]
    return require_pyarrow().chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
