"""Tables of samples in Parquet files that appear whole or not at all."""

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from torch import Tensor

from .writing import check_file, temporary_name

GROUP_ROWS = 2**16


def require_pyarrow() -> Any:
    """The pyarrow module, or an error that says how to get it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("tables need pyarrow: pip install 'torch-boc[eval]'") from error
    return pyarrow


class ParquetFile:
    """Writes batches of columns to `path`, under a temporary name until it is closed without an error.

    Batches of any size are gathered into row groups of `GROUP_ROWS`, so that the file depends on the rows alone. A path
    that cannot be a file is refused at once.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "samples.parquet"
    >>> with ParquetFile(path) as file:
    ...     file.write({"gap": torch.tensor([0.1, 0.2])})
    >>> path.exists(), file.rows
    (True, 2)
    """

    def __init__(self, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
        self.path = check_file(path)
        self.rows = 0
        self._metadata = dict(metadata or {})
        self._temporary = temporary_name(self.path)
        self._writer: Any = None
        self._file: Any = None
        self._waiting: list[Any] = []

    def write(self, columns: Mapping[str, Tensor]) -> None:
        """Append one batch; the first sets the columns and their types."""
        arrow = require_pyarrow()
        self.write_table(arrow.table({name: column.detach().cpu().numpy() for name, column in columns.items()}))

    def write_table(self, table: Any) -> None:
        """Append a pyarrow table."""
        table = table.replace_schema_metadata(self._metadata)
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            writer = require_pyarrow().parquet.ParquetWriter
            options = {"compression": "zstd", "write_page_checksum": True}
            self._file = self._temporary.open("wb")  # Arrow itself wants names in UTF-8
            self._writer = writer(self._file, table.schema, **options)
        if table.schema != self._writer.schema:
            raise ValueError(f"expected columns {_signature(self._writer.schema)}, got {_signature(table.schema)}")
        self._waiting.append(table)
        self.rows += table.num_rows
        if sum(x.num_rows for x in self._waiting) >= GROUP_ROWS:
            self._write_groups()

    def annotate(self, metadata: Mapping[str, str]) -> None:
        """Add to the metadata what is known only when rows have been written."""
        if self._writer is not None:
            self._writer.add_key_value_metadata(dict(metadata))

    def _write_groups(self, *, last: bool = False) -> None:
        """Write what fills row groups, or all that waits."""
        table = require_pyarrow().concat_tables(self._waiting).combine_chunks()
        ready = table.num_rows if last else table.num_rows // GROUP_ROWS * GROUP_ROWS
        self._writer.write_table(table.slice(0, ready), row_group_size=GROUP_ROWS)
        self._waiting = [table.slice(ready)]

    def close(self) -> None:
        """Finish the file and give it its name."""
        if self._writer is None:
            return
        try:
            self._write_groups(last=True)
            self._writer.close()
            self._file.close()
        except BaseException:
            self.discard()
            raise
        self._writer = None
        self._temporary.replace(self.path)

    def discard(self) -> None:
        """Give up: leave nothing behind, and what stood under the name as it was."""
        writer, self._writer, self._waiting = self._writer, None, []
        try:
            if writer is not None:
                writer.close()
        finally:
            if self._file is not None:
                self._file.close()
            self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> "ParquetFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


def _signature(schema: Any) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
